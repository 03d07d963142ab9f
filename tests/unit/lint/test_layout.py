"""Folders and files of a model: R002 to R007 and D001. What 24.10 did with each."""

from __future__ import annotations

from pathlib import Path

import pytest
from file_trees import Files
from lint_repositories import ensemble, found, found_in, lines, model

from mmctl.lint.configs.layout import LAYOUT_CHECKS

PYTHON = 'backend: "python"'
FLOW = ensemble("x:FP32[4]", "y:FP32[4]", "m x=x -> y=y")
CODE = {"m/1/model.py": ""}


@pytest.mark.parametrize(
    ("files", "expected", "hint"),
    [
        pytest.param(
            {"flow/config.pbtxt": FLOW},
            "error flow:1 R002 `flow` has no version folder",
            "make an empty folder `1` with a file in it, as `.gitkeep`: git drops empty folders",
            id="an ensemble that git copied",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/v2/model.py": ""},
            "error m:1 R002 `m` has no version folder (found: `v2`)",
            "rename `v2` to `2`: versions are plain numbers",
            id="a letter in front",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/01/model.py": ""},
            "error m:1 R002 `m` has no version folder (found: `01`)",
            "rename `01` to `1`: versions are plain numbers",
            id="a zero in front",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/model.py": ""},
            "error m:1 R002 `m` has no version folder",
            "move `model.py` into a folder `1`",
            id="the model beside its config",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/1": "", "m/warmup/a": "", "m/__pycache__/a": ""},
            "error m:1 R002 `m` has no version folder",
            "put the model's files into a folder `1`",
            id="a file called 1, and folders that mean something else",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/1_old/model.py": ""},
            "error m/1_old:1 R002 Triton takes the folder `1_old` for version 1, and there is no "
            "folder `1`",
            "rename it to `1`, or give it a name that begins with a letter",
            id="more behind the number",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/1/model.py": "", "m/2.bak/model.py": ""},
            "error m/2.bak:1 R002 Triton takes the folder `2.bak` for version 2, and there is no "
            "folder `2`",
            "rename it to `2`, or give it a name that begins with a letter",
            id="a copy of a later version",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/1/model.py": "", "m/99999999999999999999/a": ""},
            "error m/99999999999999999999:1 R002 the folder `99999999999999999999` is a number too "
            "large for a version: Triton dies of it",
            "rename or remove it",
            id="a number that Triton cannot read",
        ),
    ],
)
def test_version_folders(tmp_path: Path, files: Files, expected: str, hint: str) -> None:
    findings = found(tmp_path, files, LAYOUT_CHECKS)
    assert lines(findings) == [expected]
    assert [finding.hint for finding in findings] == [hint]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"m/config.pbtxt": PYTHON, "m/0/model.py": ""}, id="version 0"),
        pytest.param({"flow/config.pbtxt": FLOW, "flow/1/.gitkeep": ""}, id="an ensemble"),
        pytest.param(
            {"m/config.pbtxt": PYTHON, "m/2/model.py": "", "m/1_old/model.py": ""},
            id="a copy of a version that is not served",
        ),
        pytest.param(
            {"m/config.pbtxt": PYTHON, **CODE, "m/docs/a": "", "m/v9/a": ""}, id="other folders"
        ),
        pytest.param({"docs/readme.md": ""}, id="no model at all, as another rule says"),
    ],
)
def test_folders_that_are_right(tmp_path: Path, files: Files) -> None:
    assert lines(found(tmp_path, files, LAYOUT_CHECKS)) == []


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(
            "specific { versions: [ 3 ] }",
            [
                "error m/config.pbtxt:2 R003 no version is available under the version policy: it "
                "wants 3, and the folders are 1, 2"
            ],
            id="a version that is not there",
        ),
        pytest.param(
            "specific { }",
            [
                "error m/config.pbtxt:2 R003 no version is available under the version policy: it "
                "wants no version, and the folders are 1, 2"
            ],
            id="no version",
        ),
        pytest.param(
            "specific { versions: [ 2, 7 ] }",
            [
                "warning m/config.pbtxt:2 R003 the version policy wants version 7, and the folders "
                "are 1, 2"
            ],
            id="one of two",
        ),
        pytest.param(
            "latest { }",
            ["error m/config.pbtxt:2 R003 the version policy serves the latest 0 versions"],
            id="the latest none",
        ),
        pytest.param("latest { num_versions: 1 }", [], id="the latest one"),
        pytest.param("all { }", [], id="all"),
        pytest.param("", [], id="an empty policy is all of them"),
    ],
)
def test_version_policies(tmp_path: Path, policy: str, expected: list[str]) -> None:
    text = f"{PYTHON}\nversion_policy {{ {policy} }}"
    files = {**CODE, "m/2/model.py": ""}
    assert found_in(tmp_path, text, LAYOUT_CHECKS, files) == expected


def labelled(name: str = "a.txt", dims: str = "2") -> str:
    output = (
        f'output {{ name: "y" data_type: TYPE_FP32 dims: [ {dims} ] label_filename: "{name}" }}'
    )
    return f"{PYTHON}\n{output}"


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        pytest.param(
            labelled(),
            {},
            ["error R004 the label file `a.txt` does not exist"],
            id="no file",
        ),
        pytest.param(
            labelled(),
            {"m/a.txt": "one\ntwo\nthree\n"},
            [
                "warning R004 the number of lines in the label file `a.txt` is 3, and that of the "
                "values of output `y` 2"
            ],
            id="a line too many",
        ),
        pytest.param(
            labelled(dims="2,2"),
            {"m/a.txt": "one\ntwo"},
            [
                "warning R004 the number of lines in the label file `a.txt` is 2, and that of the "
                "values of output `y` 4"
            ],
            id="two lines too few",
        ),
        pytest.param(
            labelled("../b/a.txt"),
            {"b/config.pbtxt": PYTHON, "b/1/model.py": "", "b/a.txt": "one\ntwo"},
            [
                "warning R004 the label file `../b/a.txt` lies outside the model's folder: newer "
                "Tritons refuse it"
            ],
            id="a file of another model",
        ),
        pytest.param(labelled(), {"m/a.txt": "one\ntwo\n"}, [], id="a line for each value"),
        pytest.param(labelled(), {"m/a.txt": "one\ntwo\n\n"}, [], id="an empty line at the end"),
        pytest.param(labelled(dims="-1"), {"m/a.txt": "one"}, [], id="a number that varies"),
    ],
)
def test_label_files(tmp_path: Path, text: str, files: Files, expected: list[str]) -> None:
    found = found_in(tmp_path, text, LAYOUT_CHECKS, {**CODE, **files})
    assert [line.replace(" m/config.pbtxt:2", "") for line in found] == expected


@pytest.mark.parametrize(
    ("text", "names", "expected", "hint"),
    [
        pytest.param(
            PYTHON,
            ["helper.py"],
            "model.py`, which the backend `python` opens",
            'rename `helper.py`, or write `default_model_filename: "helper.py"`',
            id="another name for the code",
        ),
        pytest.param(
            'platform: "onnxruntime_onnx"',
            ["notes.txt"],
            "model.onnx`, which the backend `onnxruntime` opens",
            "put it there, or remove the version's folder",
            id="no file at all",
        ),
        pytest.param(
            'backend: "tensorrt" cc_model_filenames { key: "8.0" value: "a.plan" }',
            [],
            "model.plan`, which the backend `tensorrt` opens",
            "put it there, or remove the version's folder",
            id="an engine for no GPU",
        ),
        pytest.param(
            'platform: "tensorflow_savedmodel"',
            [],
            "model.savedmodel`, which the backend `tensorflow` opens",
            "put it there, or remove the version's folder",
            id="a saved model",
        ),
        pytest.param(
            'backend: "onnxruntime" default_model_filename: "net.onnx"',
            ["model.onnx"],
            "net.onnx`, which the backend `onnxruntime` opens",
            'rename `model.onnx`, or write `default_model_filename: "model.onnx"`',
            id="a name of its own that is not there",
        ),
    ],
)
def test_a_file_that_is_not_there(
    tmp_path: Path, text: str, names: list[str], expected: str, hint: str
) -> None:
    files = {"m/config.pbtxt": text, "m/1/": "", **{f"m/1/{name}": "" for name in names}}
    findings = found(tmp_path, files, LAYOUT_CHECKS)
    assert lines(findings) == [f"error m/1:1 R005 version 1 of `m` has no model file `{expected}"]
    assert findings[0].hint == hint


@pytest.mark.parametrize(
    ("text", "files"),
    [
        pytest.param(PYTHON, {"m/1/": "", "m/2/model.py": ""}, id="a version that is not served"),
        pytest.param('backend: "onnxruntime"', {"m/1/model.onnx/model.onnx": ""}, id="a folder"),
        pytest.param(
            'backend: "tensorrt" cc_model_filenames { key: "8.0" value: "a.plan" }',
            {"m/1/a.plan": ""},
            id="an engine for each GPU",
        ),
        pytest.param(
            'backend: "onnxruntime" default_model_filename: "sub/net.onnx"',
            {"m/1/sub/net.onnx": ""},
            id="a file in a folder",
        ),
        pytest.param('platform: "torch_aoti"', {"m/1/model.pt2": ""}, id="a compiled torch model"),
        pytest.param('backend: "pytorch" runtime: "model.py"', {"m/1/": ""}, id="another runtime"),
        pytest.param('backend: "mine"', {"m/1/": ""}, id="a backend that nobody knows"),
        pytest.param('backend: "vllm"', {"m/1/model.json": ""}, id="a backend without a file name"),
    ],
)
def test_files_that_are_enough(tmp_path: Path, text: str, files: Files) -> None:
    assert found_in(tmp_path, text, LAYOUT_CHECKS, files) == []


def test_a_blank_in_the_name_of_a_python_model(tmp_path: Path) -> None:
    files = {"my model/config.pbtxt": PYTHON, "my model/1/model.py": ""}
    findings = found(tmp_path, files, LAYOUT_CHECKS)
    assert lines(findings) == [
        "error my model:1 R006 the folder's name `my model` has a blank in it, and a Python model "
        "does not start there"
    ]
    assert findings[0].hint == "rename it to `my_model`"


def environment(path: str) -> str:
    inside = f'key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }}'
    return f"{PYTHON}\nparameters {{ {inside} }}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(
            "$$TRITON_MODEL_DIRECTORY/env.tar.gz",
            [
                "error m/config.pbtxt:2 R007 the execution environment `env.tar.gz` is not in the "
                "model's folder"
            ],
            id="not there",
        ),
        pytest.param("$$TRITON_MODEL_DIRECTORY/there.tar.gz", [], id="there"),
        pytest.param("/opt/env.tar.gz", [], id="on the server"),
    ],
)
def test_execution_environments(tmp_path: Path, path: str, expected: list[str]) -> None:
    files = {**CODE, "m/there.tar.gz": ""}
    assert found_in(tmp_path, environment(path), LAYOUT_CHECKS, files) == expected


def python_models(*counts: int) -> Files:
    return {
        path: text
        for number, count in enumerate(counts)
        for path, text in (
            (f"m{number}/config.pbtxt", f"{PYTHON}\ninstance_group {{ count: {count} }}"),
            (f"m{number}/1/model.py", ""),
        )
    }


def test_more_python_processes_than_docker_has_memory_for(tmp_path: Path) -> None:
    findings = found(tmp_path, python_models(10, 30, 25), LAYOUT_CHECKS)
    assert lines(findings) == [
        "warning m1/config.pbtxt:2 D001 the Python models of this repository start 65 processes, "
        "which take at least 65 MB of /dev/shm, and Docker gives 64 MB"
    ]


def test_python_processes_that_fit(tmp_path: Path) -> None:
    assert found(tmp_path, python_models(10, 30, 24), LAYOUT_CHECKS) == ()


def test_a_model_that_is_right(tmp_path: Path) -> None:
    assert found_in(tmp_path, model("x:FP32[4]", "y:FP32[4]", batch=4), LAYOUT_CHECKS) == []


@pytest.mark.parametrize(
    ("backend", "name"), [("python", "model.py"), ("onnxruntime", "model.onnx")]
)
def test_a_link_that_leads_nowhere_is_no_model_file(
    tmp_path: Path, backend: str, name: str
) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1" / name).symlink_to("../../store/nowhere")
    (line,) = found_in(tmp_path, f'backend: "{backend}"', LAYOUT_CHECKS, {})
    assert line.startswith(f"error m/1:1 R005 version 1 of `m` has no model file `{name}`")


def test_a_link_to_a_model_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/model.py").symlink_to("../../store")
    assert found_in(tmp_path, PYTHON, LAYOUT_CHECKS, {"store": ""}) == []
