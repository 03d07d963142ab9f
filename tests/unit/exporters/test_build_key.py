"""The build key: what gives a new version and what does not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from model_folders import write_model

from mmctl.errors import InputError
from mmctl.exporters.keys import build_key
from mmctl.exporters.spec import read_model

PIN = "mini-lm==0.1 --hash=sha256:" + "0" * 64
ONNX = f"source: {{onnx: 'package:mini_lm/net.onnx', sha256: {'a' * 64}}}\n"
TORCH = 'source: {torch: "source:build", outputs: [y]}\n'
CHECKPOINT = (
    f"source: {{huggingface: 'package:mini_lm/model', sha256: {'a' * 64}, "
    "task: sentence-embedding}\n"
)


@pytest.fixture
def key(workspace: Path) -> Callable[..., str]:
    """The key of a model with this model.yaml and files; weights are nowhere."""
    (workspace / "model_repository").mkdir()
    (workspace / "model_repository" / "packages.txt").write_text(PIN)

    def key_of(yaml: str, **files: str) -> str:
        space = write_model(workspace, "net", yaml, **files)
        return build_key(space, read_model(space, "net"))

    return key_of


@pytest.mark.parametrize("yaml", [ONNX, CHECKPOINT])
def test_weights_with_a_declared_hash_need_not_be_here(key: Callable[..., str], yaml: str) -> None:
    assert len(key(yaml)) == 64


@pytest.mark.parametrize(
    "addition",
    [
        "# a comment\n",
        "precision: fp32\n",
        "batching: {max_batch: 64, max_delay_ms: 3}\n",
        "instances: {gpu: 2}\n",
        "verify: {tolerance: 1e-3}\n",
        "response_cache: false\n",
    ],
)
def test_settings_give_no_new_version(key: Callable[..., str], addition: str) -> None:
    assert key(ONNX + addition) == key(ONNX)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(ONNX.replace("aaaa", "bbbb"), id="other weights"),
        pytest.param(ONNX + "rename: {x: pixels}\n", id="other names"),
        pytest.param(ONNX + "batching: none\n", id="no batch axis"),
        pytest.param(CHECKPOINT, id="another kind of source"),
    ],
)
def test_what_ends_in_the_file_gives_a_new_version(key: Callable[..., str], other: str) -> None:
    assert key(other) != key(ONNX)


def test_the_task_is_part_of_a_checkpoint(key: Callable[..., str]) -> None:
    assert key(CHECKPOINT) != key(CHECKPOINT.replace("sentence-embedding", "feature-extraction"))


def test_the_pinned_package_is_part_of_a_checkpoint(
    key: Callable[..., str], workspace: Path
) -> None:
    before = key(CHECKPOINT)
    (workspace / "model_repository" / "packages.txt").write_text(PIN.replace("000", "111"))
    assert key(CHECKPOINT) != before


def test_code_and_arrays_beside_model_yaml_are_part_of_a_torch_source(
    key: Callable[..., str], workspace: Path
) -> None:
    first = key(TORCH, source_py="def build(): ...\n")
    assert key(TORCH, README_md="# Notes\n") == first
    assert key(TORCH, words_npz="0 1") != first
    assert key(TORCH, source_py="def build(): return 1\n") != first


@pytest.mark.parametrize(
    "path",
    [
        "model.lock",
        "config.pbtxt",
        "configs/gpu.pbtxt",
        "1/model.onnx",
        ".1.k3j2/model.onnx",
        "__pycache__/source.cpython-311.pyc",
    ],
)
def test_generated_files_are_no_source(key: Callable[..., str], workspace: Path, path: str) -> None:
    before = key(TORCH, source_py="def build(): ...\n")
    file = workspace / "model_repository" / "net" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("generated")
    assert key(TORCH) == before


def test_a_local_file_without_a_hash_counts_by_its_content(
    key: Callable[..., str], workspace: Path
) -> None:
    local = "source: {onnx: net.onnx}\n"
    first = key(local, net_onnx="weights")
    assert key(local, net_onnx="others") != first
    (workspace / "model_repository" / "net" / "net.onnx").unlink()
    with pytest.raises(InputError, match=r"`net.onnx` does not exist"):
        key(local)


def test_a_local_checkpoint_counts_by_its_files(key: Callable[..., str], workspace: Path) -> None:
    local = "source: {huggingface: checkpoint, task: feature-extraction}\n"
    folder = workspace / "model_repository" / "net" / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")
    first = key(local)
    (folder / "config.json").write_text('{"a": 1}')
    assert key(local) != first
    declared = local.replace("task:", f"sha256: {'a' * 64}, task:")
    second = key(declared)
    (folder / "model.safetensors").unlink()
    assert key(declared) == second


def test_a_package_that_is_not_pinned_has_no_key(key: Callable[..., str]) -> None:
    with pytest.raises(InputError, match=r"is not in model_repository/packages.txt") as caught:
        key(TORCH.replace("}", ", pip: maxi-lm==2}"), source_py="")
    assert caught.value.hint == "add the line `maxi-lm==2 --hash=sha256:...`"


PROVEN = ONNX + "precision: int8\nverify: {data: 'texts:held_out', calibration: 'texts:other'}\n"
TEXTS = {
    "texts.py": "from words import BEST\n\ndef held_out():\n    import numpy\n    yield BEST\n",
    "words.py": "BEST = open('words/best.txt').read()\n",
    "texts/held_out.txt": "good\n",
    "words/best.txt": "better\n",
    "photos.py": "",
    "photos/cat.jpg": "a cat",
}


def write_calibration(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / "calibration" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("texts.py", id="the generator's module"),
        pytest.param("texts/held_out.txt", id="its data"),
        pytest.param("texts/more/new.txt", id="more data"),
        pytest.param("words.py", id="a module that it imports"),
        pytest.param("words/best.txt", id="the data of that module"),
    ],
)
def test_what_samples_are_made_from_is_part_of_a_proven_precision(
    key: Callable[..., str], workspace: Path, name: str
) -> None:
    write_calibration(workspace, TEXTS)
    before = key(PROVEN)
    write_calibration(workspace, {name: TEXTS.get(name, "") + "# more\n"})
    assert key(PROVEN) != before


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("photos.py", id="another generator"),
        pytest.param("photos/cat.jpg", id="its data"),
        pytest.param("texts/.DS_Store", id="a hidden file"),
        pytest.param("texts/__pycache__/a.pyc", id="a cache of Python"),
        pytest.param("README", id="what no module is named for"),
    ],
)
def test_other_files_of_calibration_are_not(
    key: Callable[..., str], workspace: Path, name: str
) -> None:
    write_calibration(workspace, TEXTS)
    before = key(PROVEN)
    write_calibration(workspace, {name: "# another\n"})
    assert key(PROVEN) == before


def test_samples_count_for_nothing_in_a_plain_fp32_model(
    key: Callable[..., str], workspace: Path
) -> None:
    write_calibration(workspace, TEXTS)
    assert key(ONNX + "verify: {data: 'texts:held_out'}\n") == key(ONNX)


def test_a_module_that_does_not_parse_has_a_key_of_its_text(
    key: Callable[..., str], workspace: Path
) -> None:
    write_calibration(workspace, {"texts.py": "def held_out(:\n"})
    first = key(PROVEN)
    write_calibration(workspace, {"texts.py": "def held_out(::\n"})
    assert key(PROVEN) != first
