"""Reading a pipeline's folder: its files and nothing else, and nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmctl.errors import InputError, InvalidFiles
from mmctl.pipeline import Asset, read_pipeline
from mmctl.workspace import Workspace, read_workspace


@pytest.fixture
def place(workspace: Path) -> Workspace:
    """A workspace with a pipeline `demo`, whose steps.py must not be run."""
    write(workspace, "ensembles/demo/pipeline.yaml", "pipeline: demo\n")
    write(workspace, "ensembles/demo/steps.py", "raise SystemExit('imported')\n")
    write(workspace, "ensembles/common/words.py", "WORDS = []\n")
    return read_workspace(workspace)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_modules_are_read_as_text(place: Workspace) -> None:
    pipeline = read_pipeline(place, "demo")
    assert pipeline.modules["steps"].text == "raise SystemExit('imported')\n"
    assert pipeline.modules["steps"].path == "ensembles/demo/steps.py"
    assert pipeline.common["words"].path == "ensembles/common/words.py"
    assert pipeline.document.path == "ensembles/demo/pipeline.yaml"


def test_assets_are_files_and_names_of_files_in_packages(place: Workspace) -> None:
    write(place.root, "ensembles/demo/assets/deep/words.txt", "one\n")
    write(place.root, "ensembles/demo/assets/.hidden", "")
    write(
        place.root,
        "ensembles/demo/assets.yaml",
        'plain.json: "package:m/a.json"\nsure.json: {file: "package:m/b.json", sha256: abc}\n',
    )
    assert read_pipeline(place, "demo").assets == {
        "deep/words.txt": Asset("deep/words.txt", b"one\n"),
        "plain.json": Asset("plain.json", package="package:m/a.json"),
        "sure.json": Asset("sure.json", package="package:m/b.json", sha256="abc"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('../x: "package:m/a"', "`../x` leaves the folder assets/", id="above"),
        pytest.param('/x: "package:m/a"', "`/x` leaves the folder assets/", id="absolute"),
        pytest.param("x: /etc/passwd", "write a file of a package, package:NAME/path", id="a path"),
        pytest.param('x: {fil: "package:m/a"}', "unknown key `fil`", id="unknown key"),
    ],
)
def test_assets_yaml_names_only_files_of_packages(
    place: Workspace, text: str, message: str
) -> None:
    write(place.root, "ensembles/demo/assets.yaml", f"{text}\n")
    with pytest.raises(InvalidFiles) as error:
        read_pipeline(place, "demo")
    assert message in str(error.value)


def test_requirements_are_read(place: Workspace) -> None:
    write(place.root, "ensembles/demo/requirements.txt", "pillow\n")
    assert read_pipeline(place, "demo").requirements == "pillow\n"


def test_a_pipeline_that_opens_a_file_of_a_package_says_so(place: Workspace) -> None:
    assert not read_pipeline(place, "demo").uses_packages
    step = '{use: tokenize, tokenizer: "package:m/tokenizer.json"}'
    text = f"pipeline: demo\nnodes: {{a: {{step: {step}}}}}\n"
    write(place.root, "ensembles/demo/pipeline.yaml", text)
    assert read_pipeline(place, "demo").uses_packages


def test_an_unknown_pipeline_is_an_error_with_the_nearest_name(place: Workspace) -> None:
    with pytest.raises(InputError) as error:
        read_pipeline(place, "dmeo")
    assert error.value.hint == "did you mean `demo`?"
