"""What `import mmctl` promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mmctl


def test_the_list_of_public_names_is_sorted() -> None:
    assert mmctl.__all__ == sorted(mmctl.__all__)


def test_the_list_of_public_names_is_complete() -> None:
    reachable = {name for name in mmctl.__all__ if getattr(mmctl, name) is not None}
    classes = {"AsyncClient", "Cache", "Client", "EmbeddedTriton", "InferenceError", "Tls"}
    assert reachable == {*classes, "__version__", "check"}


def test_each_public_class_bears_its_name() -> None:
    classes = [name for name in mmctl.__all__ if not name.startswith("_")]
    assert [getattr(mmctl, name).__name__ for name in classes] == classes


def test_any_other_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="`mmctl` has no attribute `nothing`"):
        _ = mmctl.nothing


def test_the_import_is_light() -> None:
    code = "import sys, mmctl; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "tritonclient", "grpc", "typer", "pydantic", "redis", "msgpack"} & set(
        done.stdout.split()
    )
