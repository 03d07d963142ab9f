"""The runtime: where it is, when it counts, when it is out of date."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mmctl.errors import WorldError
from mmctl.files import sha256_file
from mmctl.server.install import MARKER, ensure_bare_runtime, ensure_runtime, remove_runtime
from mmctl.server.machine import lacks_glibc, lacks_platform, lacks_space
from mmctl.server.runtime import (
    LOCK,
    STAMP,
    Runtime,
    check_numpy,
    describe_runtime,
    outdated,
    precompile,
    read_runtime,
    runtime_below,
    runtime_root,
)
from mmctl.workspace import Workspace, read_workspace


@pytest.fixture
def place(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.delenv("MMCTL_RUNTIME", raising=False)
    return read_workspace(workspace)


@pytest.fixture
def installed(place: Workspace) -> Callable[..., Path]:
    """Makes what an install leaves behind, as far as it is looked at."""

    def install(lock: str = sha256_file(LOCK), requirements: dict[str, str] | None = None) -> Path:
        root = runtime_root(place)
        stamp = {
            "schema": 1,
            "python": "3.11.7",
            "libpython": str(root),
            "lock": lock,
            "requirements": requirements or {},
        }
        runtime = Runtime(root, "3.11.7", root, lock, {})
        for file in (runtime.python, runtime.tritonserver, runtime.stub):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        (root / MARKER).touch()
        (root / STAMP).write_text(json.dumps(stamp))
        return root

    return install


def add_requirements(place: Workspace, pipeline: str, text: str) -> str:
    """requirements.txt of a pipeline; its digest."""
    file = place.pipelines / pipeline / "requirements.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return sha256_file(file)


def test_it_is_private_to_the_workspace_unless_a_variable_says_otherwise(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime_root(place) == place.state / "runtime"
    monkeypatch.setenv("MMCTL_RUNTIME", str(tmp_path / "elsewhere"))
    assert runtime_root(place) == tmp_path / "elsewhere"


def test_a_runtime_counts_once_it_is_stamped_and_whole(
    place: Workspace, installed: Callable[..., Path]
) -> None:
    root = installed()
    assert read_runtime(root) is not None
    (root / STAMP).unlink()
    assert read_runtime(root) is None
    installed()
    (root / "bin" / "python").unlink()
    assert read_runtime(root) is None


@pytest.mark.parametrize("stamp", ["", "{}", "[]", '{"schema": 2}', '{"schema": 1}'])
def test_a_stamp_that_cannot_be_read_is_no_stamp(
    place: Workspace, installed: Callable[..., Path], stamp: str
) -> None:
    root = installed()
    (root / STAMP).write_text(stamp)
    assert read_runtime(root) is None


def test_it_is_out_of_date_for_other_pins_and_for_requirements_it_has_not(
    place: Workspace, installed: Callable[..., Path]
) -> None:
    def reason(**stamped: object) -> str | None:
        runtime = read_runtime(installed(**stamped))
        assert runtime is not None
        return outdated(runtime, place)

    assert reason() is None
    assert reason(lock="another") == "this mmctl pins other packages"
    digest = add_requirements(place, "ocr", "regex==2024.11.6\n")
    assert reason() == "`ensembles/ocr/requirements.txt` has changed"
    assert reason(requirements={"ocr": digest, "another": "workspace's"}) is None


def test_what_is_ready_is_not_installed_again(
    place: Workspace, installed: Callable[..., Path]
) -> None:
    said: list[str] = []
    root = installed()
    assert ensure_runtime(place, said.append).root == root
    assert said == []
    assert describe_runtime(place)["state"] == "ready"


def test_without_a_workspace_the_state_alone_says_where_it_is(
    place: Workspace, installed: Callable[..., Path]
) -> None:
    root = installed()
    add_requirements(place, "ocr", "regex==2024.11.6\n")  # of no concern to what needs no pipeline
    assert ensure_bare_runtime(place.state, print).root == root == runtime_below(place.state)


def test_info_tells_absent_from_outdated(place: Workspace, installed: Callable[..., Path]) -> None:
    assert describe_runtime(place)["state"] == "absent"
    installed(lock="another")
    assert describe_runtime(place)["state"] == "outdated"


def test_remove_deletes_a_runtime_and_nothing_else(
    place: Workspace, installed: Callable[..., Path], tmp_path: Path
) -> None:
    root = installed()
    assert remove_runtime(root)
    assert not root.exists()
    assert not remove_runtime(root)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "pyvenv.cfg").touch()
    with pytest.raises(WorldError, match="not a runtime of mmctl"):
        remove_runtime(tmp_path / "precious")
    assert (tmp_path / "precious").is_dir()


@pytest.mark.parametrize(
    ("folders", "fine"),
    [
        pytest.param(["numpy-1.26.4.dist-info"], True, id="numpy 1"),
        pytest.param(["numpy-2.1.0.dist-info"], False, id="numpy 2"),
        pytest.param([], False, id="none"),
        pytest.param(["numpy-1.26.4.dist-info", "numpy-2.1.0.dist-info"], False, id="both"),
    ],
)
def test_only_a_numpy_below_2_may_start(tmp_path: Path, folders: list[str], fine: bool) -> None:
    runtime = Runtime(tmp_path, "3.11.7", tmp_path, "", {})
    for folder in folders:
        (runtime.packages / folder).mkdir(parents=True)
    if fine:
        check_numpy(runtime)
        return
    with pytest.raises(WorldError, match="needs a numpy below 2"):
        check_numpy(runtime)


def test_programs_of_the_runtime_find_its_libraries_and_its_python(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, "3.12.1", Path("/python/lib"), "", {})
    variables = runtime.environment({"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/own"})
    assert variables["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert variables["LD_LIBRARY_PATH"] == f"{runtime.libs}:/python/lib:/own"
    assert runtime.packages == tmp_path / "lib" / "python3.12" / "site-packages"


def test_precompiled_code_is_not_compiled_again_by_its_time(tmp_path: Path) -> None:
    """What is in the byte code counts, whatever becomes of the source's time."""
    runtime = Runtime(tmp_path / "runtime", "3.11.7", tmp_path, "", {})
    runtime.python.parent.mkdir(parents=True)
    runtime.python.symlink_to(sys.executable)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.py").write_text("x = 1\n")
    (tmp_path / "model" / "broken.py").write_text("def f(:\n")
    precompile(runtime, [tmp_path / "model"])
    (code,) = (tmp_path / "model" / "__pycache__").iterdir()
    assert code.read_bytes()[4:8] == b"\x01\0\0\0"  # PEP 552: by hash, and unchecked


def test_a_place_that_cannot_be_written_is_a_clear_error(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.state.write_text("a file where the folder should be")
    with pytest.raises(WorldError, match="cannot write"):
        ensure_runtime(place, print)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        pytest.param(lacks_platform("Linux", "x86_64"), None, id="Linux on x86-64"),
        pytest.param(lacks_platform("Darwin", "arm64"), "Darwin on arm64", id="a Mac"),
        pytest.param(lacks_platform("Linux", "aarch64"), "Linux on aarch64", id="ARM"),
        pytest.param(lacks_glibc("glibc", "2.36"), None, id="Debian 12"),
        pytest.param(lacks_glibc("glibc", "2.31"), "needs glibc 2.35", id="Debian 11"),
        pytest.param(lacks_glibc("", ""), "another one", id="musl"),
        pytest.param(lacks_space(Path("/"), 1), None, id="enough space"),
        pytest.param(lacks_space(Path("/no/such"), 10**18), "MB free", id="a full disk"),
    ],
)
def test_what_a_machine_lacks(problem: str | None, said: str | None) -> None:
    assert (problem is None) if said is None else (problem is not None and said in problem)
