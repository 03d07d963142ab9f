"""What model.yaml may say, and what is answered to what it may not."""

from pathlib import Path

import pytest
from model_folders import PYTHON_YAML, write_model

from mmctl.errors import InputError, InvalidFiles
from mmctl.exporters import exportable_names
from mmctl.exporters.sources.onnx import OnnxSource
from mmctl.exporters.spec import read_model, read_models
from mmctl.tensors import TensorType, parse_type

HASH = "a" * 64


def test_a_whole_model_file(workspace: Path) -> None:
    space = write_model(
        workspace,
        "nsfw",
        f"""\
        source: {{onnx: "package:open_nsfw/net.onnx", pip: open-nsfw==1.0.0, sha256: {HASH}}}
        rename: {{input_0: pixels, "4195": probs}}
        precision: fp32
        batching: {{max_batch: 32, max_delay_ms: 10, preferred: [4, 8, 16]}}
        instances: {{cpu: 1, gpu: 2}}
        verify: {{tolerance: 1e-4}}
        """,
    )
    model = read_model(space, "nsfw")
    assert isinstance(model.file.source, OnnxSource)
    assert model.file.rename == {"input_0": "pixels", "4195": "probs"}
    assert model.file.verify.tolerance == 1e-4
    assert model.file.batched
    assert model.uses_packages


def test_a_python_source_declares_its_tensors(workspace: Path) -> None:
    space = write_model(workspace, "echo", PYTHON_YAML)
    declared = read_model(space, "echo").file.declared
    assert [str(spec) for spec in declared.inputs] == ["text: string"]
    assert declared.outputs[1].type == parse_type("fp32[3]")
    assert declared.max_batch == 1


def test_batching_none_takes_the_batch_axis_away(workspace: Path) -> None:
    space = write_model(workspace, "echo", PYTHON_YAML.replace("{max_batch: 8}", "none"))
    model = read_model(space, "echo")
    assert not model.file.batched
    assert model.file.declared.max_batch == 0


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        pytest.param(
            "source: {onnx: a.onnx, sha: b}",
            "1:24: Y003 unknown key `sha`\n  hint: did you mean `sha256`?",
            id="a misspelt key of the source names the right one",
        ),
        pytest.param(
            "source: {onnx: a.onnx, torch: b:c}",
            "1:9: Y005 `source`: write exactly one of onnx, torch, huggingface, python",
            id="two kinds of source",
        ),
        pytest.param("batching: none", "1:1: Y004 `source` is missing", id="no source"),
        pytest.param("source: {huggingface: there}", "1:9: Y004 `task` is missing", id="no task"),
        pytest.param(
            "source: {onnx: 'https://a.b/c.onnx'}",
            "1:9: Y005 `source`: `sha256` is missing: a package: or https:// file is named by",
            id="a file from elsewhere needs its hash",
        ),
        pytest.param(
            f"source: {{onnx: 'http://a.b/c.onnx', sha256: {HASH}}}",
            "1:9: Y005 `source`: an address starts with https://",
            id="no plain http",
        ),
        pytest.param(
            "source: {onnx: 'package:a/b', sha256: ABC}",
            "1:39: Y005 `sha256`: `ABC` is not a SHA-256, 64 digits of 0-9 and a-f",
            id="a hash that is none",
        ),
        pytest.param(
            "source: {torch: build}",
            "1:17: Y005 `torch`: `build` is not `module:function`",
            id="a function without its module",
        ),
        pytest.param(
            "source: {huggingface: a/b, revision: main, task: feature-extraction}",
            "1:38: Y005 `revision`: `main` is not a commit, 40 digits of 0-9 and a-f",
            id="a revision that moves",
        ),
        pytest.param(
            "source: {python: ../model.py}",
            "1:18: Y005 `python`: `../model.py` is not a path inside the model's folder",
            id="a file outside the folder",
        ),
        pytest.param(
            "source: {python: model.py}\ninputs: {x: fp32}",
            "1:1: Y005 a python source needs `inputs` and `outputs`: {name: type}",
            id="half a signature",
        ),
        pytest.param(
            "source: {onnx: a.onnx}\ninputs: {x: fp32}",
            "1:1: Y005 `inputs` and `outputs` are for python and tensorrt sources; others are",
            id="a signature that nobody needs",
        ),
        pytest.param(
            'source: {python: m.py}\ninputs: {x: "uint8[*,3]"}\noutputs: {y: fp32}',
            "2:13: Y005 `x`: `uint8[*,3]`: a model's tensor has no `*` axis",
            id="a list tensor",
        ),
        pytest.param(
            "source: {onnx: a.onnx}\nprecision: int9",
            "2:12: Y005 `precision`: input should be 'fp32', 'fp16', 'int8' or 'int4'",
            id="a precision that is not there",
        ),
        pytest.param(
            "source: {onnx: a.onnx}\nrename: {a: no-name}",
            "2:13: Y005 `a`: `no-name` is not an identifier",
            id="a name that no step could have as parameter",
        ),
        pytest.param(
            "source: {onnx: a.onnx}\nverify: {tolerance: 0.5}",
            "2:21: Y005 `tolerance`: input should be less than or equal to 0.01",
            id="a tolerance that proves nothing",
        ),
    ],
)
def test_what_is_wrong_is_said_at_its_place(workspace: Path, yaml: str, said: str) -> None:
    space = write_model(workspace, "bad", yaml)
    with pytest.raises(InvalidFiles) as caught:
        read_model(space, "bad")
    assert caught.value.message.startswith(f"model_repository/bad/model.yaml:{said}")


def test_mistakes_of_several_files_come_together(workspace: Path) -> None:
    write_model(workspace, "one", "source: {}")
    space = write_model(workspace, "two", "source: {python: m.py}\nbatchin: none")
    with pytest.raises(InvalidFiles) as caught:
        read_models(space, ["one", "two"])
    assert [finding.path for finding in caught.value.findings] == [
        "model_repository/one/model.yaml",
        "model_repository/two/model.yaml",
    ]


def test_a_model_that_is_not_there_names_the_nearest(workspace: Path) -> None:
    space = write_model(workspace, "toxicity_head", "source: {onnx: a.onnx}")
    assert exportable_names(space) == ["toxicity_head"]
    with pytest.raises(InputError, match="there is no model `toxicity_haed`") as caught:
        read_model(space, "toxicity_haed")
    assert caught.value.hint == "did you mean `toxicity_head`?"


def test_a_name_never_leaves_the_repository(workspace: Path) -> None:
    space = write_model(workspace, "echo", PYTHON_YAML)
    with pytest.raises(InputError, match="is not a name"):
        read_model(space, "../model_repository/echo")


def test_types_are_values(workspace: Path) -> None:
    file = read_model(write_model(workspace, "echo", PYTHON_YAML), "echo").file
    assert all(isinstance(kind, TensorType) for kind in file.inputs.values())
