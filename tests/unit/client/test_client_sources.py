"""What `-i NAME=VALUE` means, and reading the files it names."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mmctl.client.sources import (
    FromFile,
    FromNpy,
    Source,
    leaves,
    parse_option,
    parse_source,
    read_source,
    source_text,
)
from mmctl.errors import InputError
from mmctl.tensors import TensorSpec, parse_type


def spec(kind: str) -> TensorSpec:
    return TensorSpec("x", parse_type(kind))


def test_an_option_ends_its_name_at_the_first_equals_sign() -> None:
    assert parse_option("text=a=b") == ("text", "a=b")
    assert parse_option("text=") == ("text", "")


@pytest.mark.parametrize("text", ["text", "=value", ""])
def test_an_option_without_name_and_value_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no `=` between name and value"):
        parse_option(text)


@pytest.mark.parametrize(
    ("texts", "kind", "source"),
    [
        pytest.param(["5"], "string", "5", id="text is text, numbers too"),
        pytest.param(["a", "b"], "bytes", ["a", "b"], id="several are rows"),
        pytest.param(["@a.jpg"], "bytes", FromFile(Path("a.jpg")), id="a file for bytes"),
        pytest.param(["@@home"], "string", "@home", id="text that begins with @"),
        pytest.param(["a"], "string[-1]", ["a"], id="one text for an axis of its own"),
        pytest.param(["5"], "fp32", 5, id="a number"),
        pytest.param(["[1, 2.5]"], "fp32[2]", [1, 2.5], id="a list"),
        pytest.param(["[1]", "[2]"], "fp32[1,1]", [[1], [2]], id="several lists are rows"),
        pytest.param(["true"], "bool", True, id="a boolean"),
        pytest.param(["Infinity"], "fp32", math.inf, id="infinity"),
        pytest.param(["@x.npy"], "fp32[2]", FromNpy(Path("x.npy")), id="an array's file"),
    ],
)
def test_values(texts: list[str], kind: str, source: Source) -> None:
    assert parse_source(texts, spec(kind)) == source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("abc", "`abc` is not JSON, and the tensor is fp32", id="text"),
        pytest.param("[1,", "is not JSON", id="half a list"),
        pytest.param("[" * 100_000, "is not JSON", id="deeper than anything"),
        pytest.param("1" * 5000, "is not JSON", id="longer than any number"),
        pytest.param("@x.jpg", "`x.jpg` is not a .npy file", id="a file of another kind"),
    ],
)
def test_what_is_no_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match="`-i x`: ") as caught:
        parse_source([text], spec("fp32"))
    assert message in str(caught.value)
    assert caught.value.hint


def test_files_are_read_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8")
    np.save(tmp_path / "x.npy", np.arange(3))
    source: Source = ["a", [FromFile(tmp_path / "a.jpg")], FromNpy(tmp_path / "x.npy")]
    text, photo, array = read_source(source, "here")  # type: ignore[misc]
    assert (text, photo, array.tolist()) == ("a", [b"\xff\xd8"], [0, 1, 2])


@pytest.mark.parametrize("kind", [FromFile, FromNpy])
def test_a_missing_file_is_told(tmp_path: Path, kind: type[FromFile] | type[FromNpy]) -> None:
    with pytest.raises(InputError, match=r"^here: .*none\.npy: no such file") as caught:
        read_source(kind(tmp_path / "none.npy"), "here")
    assert "@@" in str(caught.value.hint)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        read_source(FromFile(tmp_path), "here")


class Bomb:
    """Unpickling this would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([Bomb(tmp_path / "went off")], dtype=object))
    with pytest.raises(InputError, match="not an array that is safe to read"):
        read_source(FromNpy(tmp_path / "x.npy"), "here")
    assert not (tmp_path / "went off").exists()


@pytest.mark.parametrize(
    "content", [b"", b"not numpy", b"\x93NUMPY\x01\x00"], ids=["empty", "text", "cut short"]
)
def test_what_is_no_npy_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match="not an array"):
        read_source(FromNpy(tmp_path / "x.npy"), "here")


def test_leaves_come_in_the_order_of_the_array() -> None:
    assert leaves([["a", FromFile(Path("b"))], ["c", "d"]]) == ["a", FromFile(Path("b")), "c", "d"]


def test_a_source_in_few_words() -> None:
    assert source_text(["a", FromFile(Path("dir/a.jpg")), 5]) == "[a, a.jpg, 5]"
