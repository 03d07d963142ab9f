"""Samples of calibration/: how they are found and read, and what is said to bad ones."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from model_folders import write_model, write_samples
from onnx_samples import onnx_model

from mmctl.errors import InputError, InvalidFiles
from mmctl.exporters.accuracy.data import Sample, blocks_of, refuse_shared
from mmctl.exporters.accuracy.read import load_metric, load_samples
from mmctl.exporters.held_out import load_data
from mmctl.exporters.keys import build_key
from mmctl.exporters.spec import read_model
from mmctl.workspace import read_workspace

YAML = "source: {onnx: net.onnx}\nprecision: int8\n"
GOOD = """
def one():
    yield {"x": np.random.rand(8, 4).astype(np.float32)}


def other():
    yield {"x": np.random.rand(8, 4).astype(np.float32) + 1}
"""


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in ("data", "neighbour"):
            del sys.modules[name]


def loaded(root: Path, code: str, name: str = "data:one") -> list[Sample]:
    write_samples(root, "data", code)
    return load_samples(root, name)


def test_a_generator_yields_inputs_with_or_without_labels(workspace: Path) -> None:
    code = """
    from neighbour import ROWS

    def one():
        yield {"x": np.zeros((ROWS, 4))}
        yield {"inputs": {"x": np.ones((2, 4))}, "labels": [1, 2]}
        yield {"inputs": {"x": np.ones((1, 4))}, "labels": {"y": [1], "z": ["a"]}}
    """
    write_samples(workspace, "neighbour", "ROWS = 3\n")
    plain, labelled, named = loaded(workspace, code)
    assert (plain.rows, plain.labels) == (3, {})
    assert labelled.labels[""].tolist() == [1, 2]
    assert sorted(named.labels) == ["y", "z"]
    assert not list((workspace / "calibration").glob("__pycache__")), "nothing is left beside it"


def test_generators_are_seeded(workspace: Path) -> None:
    (first,), (again,) = loaded(workspace, GOOD), loaded(workspace, GOOD)
    assert np.array_equal(first.inputs["x"], again.inputs["x"])


def test_a_generator_that_takes_a_parameter_is_given_the_model_packages(workspace: Path) -> None:
    code = """
    def one(packages):
        yield {"x": np.array([[len((packages / "words.txt").read_text())]])}
    """
    packages = read_workspace(workspace).packages
    packages.mkdir(parents=True)
    (packages / "words.txt").write_text("four")
    (sample,) = loaded(workspace, code)
    assert sample.inputs["x"].tolist() == [[4]]


def test_an_npz_holds_one_array_an_input(workspace: Path) -> None:
    (workspace / "calibration" / "sub").mkdir(parents=True)
    np.savez(workspace / "calibration" / "sub" / "a.npz", x=np.zeros((5, 4)), labels=np.arange(5))
    (sample,) = load_samples(workspace, "sub/a.npz")
    assert (sample.rows, list(sample.inputs), sample.labels[""].tolist()) == (5, ["x"], [*range(5)])


def test_recorded_requests_are_read_as_triton_takes_them(workspace: Path) -> None:
    tensors = [
        {"name": "ids", "datatype": "INT64", "shape": [1, 3], "data": [1, 2, 3]},
        {"name": "text", "datatype": "BYTES", "shape": [1, 1], "data": ["hello"]},
    ]
    (workspace / "calibration").mkdir()
    path = workspace / "calibration" / "seen.jsonl"
    path.write_text(json.dumps({"inputs": tensors}) + "\n")
    (sample,) = load_samples(workspace, "seen.jsonl")
    assert sample.inputs["ids"].dtype == np.int64
    assert sample.inputs["ids"].tolist() == [[1, 2, 3]]
    assert sample.inputs["text"].tolist() == [["hello"]]


@pytest.mark.parametrize(
    ("name", "code", "said", "hint"),
    [
        pytest.param(
            "dta:one",
            GOOD,
            "`dta:one`: calibration/dta.py does not exist",
            "did you mean `data`?",
            id="no such module",
        ),
        pytest.param(
            "data:ones",
            GOOD,
            "`data:ones`: data.py has no function `ones`",
            "did you mean `one`?",
            id="no such function",
        ),
        pytest.param("data.npz", GOOD, "calibration/data.npz does not exist", None, id="no file"),
        pytest.param("data:one", "def one(:\n", "data.py:2: SyntaxError", None, id="no Python"),
        pytest.param(
            "data:one",
            "def one():\n    yield {'x': np.ones(3)}\n    raise OSError('no disk')\n",
            "`data:one`: data.py:4: OSError: no disk",
            None,
            id="raises in the middle",
        ),
        pytest.param("data:one", "def one(): ...\n", "TypeError: 'NoneType'", None, id="none"),
        pytest.param(
            "data:one", "def one(): return []\n", "`data:one` gives no samples", None, id="empty"
        ),
        pytest.param(
            "data:one",
            "def one(): yield np.ones(3)\n",
            "`data:one`: sample 0 is a ndarray",
            "yield dicts: {input name: array}",
            id="no dict",
        ),
        pytest.param(
            "data:one",
            "def one():\n    while True: yield {'x': np.ones((1000, 1))}\n",
            "`data:one`: more than 50000 rows",
            "let the generator end",
            id="without end",
        ),
        pytest.param(
            "data:one",
            "def one(): yield {'x': [[1], [1, 2]]}\n",
            "sample 0: `x` is no array",
            None,
            id="ragged",
        ),
    ],
)
def test_what_cannot_be_read_is_said(
    workspace: Path, name: str, code: str, said: str, hint: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        loaded(workspace, code, name)
    assert said in caught.value.message
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("a.npz", "no archive", "`a.npz`: cannot be read as .npz"),
        ("a.jsonl", '{"inputs": []}\nno json\n', "`a.jsonl`: sample 0 is a dict"),
        ("a.jsonl", "no json\n", "`a.jsonl`: line 1 is no inference request"),
        ("a.jsonl", '{"inputs": [{"name": "x"}]}\n', "line 1 is no inference request: 'datatype'"),
    ],
)
def test_files_that_are_something_else(workspace: Path, file: str, content: str, said: str) -> None:
    (workspace / "calibration").mkdir()
    (workspace / "calibration" / file).write_text(content)
    with pytest.raises(InputError, match=said):
        load_samples(workspace, file)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(
            "def one(): yield {'z': np.ones((2, 4), np.float32)}\n",
            "`data:one`: calibration batch 0: the model has no input `z`",
            id="wrong key",
        ),
        pytest.param(
            "def one(): yield {'x': np.ones((2, 5), np.float32)}\n",
            r"`data:one`: calibration batch 0: `x` has shape \[2, 5\], the model takes \[-1, 4\]",
            id="wrong shape",
        ),
        pytest.param(
            "def one(): yield {'x': np.ones((2, 4))}\n",
            "calibration batch 0: `x` is float64, the model takes float32",
            id="wrong type",
        ),
        pytest.param(
            "def one():\n    for _ in range(9): yield {'x': np.ones((2, 4), np.float32)}\n",
            "calibration data holds one sample over and over",
            id="all equal",
        ),
        pytest.param(
            "def one(): yield {'inputs': {'x': np.eye(4, dtype=np.float32)}, 'labels': [1, 2]}\n",
            "calibration batch 0 has no common number of rows: `x` 4, `labels` 2",
            id="labels of other rows",
        ),
        pytest.param(
            "def one(): return other()\n",
            "8 of 8 held-out samples are calibration samples too",
            id="the held-out samples under another name",
        ),
    ],
)
def test_data_that_does_not_fit_is_refused_before_anything_is_converted(
    workspace: Path, code: str, said: str
) -> None:
    pytest.importorskip("onnx")
    graph = onnx_model(
        {"x": ("FLOAT", ["N", 4])}, {"y": ("FLOAT", ["N", 4])}, [("Relu", ["x"], ["y"], {})]
    )
    yaml = f"{YAML}verify: {{calibration: 'data:one', data: 'data:other'}}\n"
    space = write_model(workspace, "net", yaml, net_onnx=graph)
    write_samples(workspace, "data", GOOD[GOOD.index("def other") :] + code)
    with pytest.raises(InputError, match=said):
        load_data(read_model(space, "net"), space.models / "net" / "net.onnx")


def test_one_shared_row_is_enough_to_prove_nothing() -> None:
    a = Sample({"x": np.arange(12).reshape(4, 3)}, {})
    b = Sample({"x": np.arange(9, 15).reshape(2, 3)}, {})
    with pytest.raises(InputError, match="1 of 2 held-out samples are calibration samples too"):
        refuse_shared([a], [b])
    refuse_shared([a], [b.cut(1, 2)])


def test_samples_of_equal_shapes_are_joined_in_order() -> None:
    samples = [Sample({"x": np.full((rows, size), rows)}, {}) for rows, size in ((1, 2), (2, 5))]
    first, second = blocks_of([*samples, *samples], batched=True)
    assert first.inputs["x"].shape == (2, 2)
    assert second.inputs["x"].shape == (4, 5)
    assert blocks_of(samples, batched=False) == samples


def test_what_a_metric_raises_has_its_line(workspace: Path) -> None:
    write_samples(workspace, "data", "def own(answers, labels):\n    return 1 / 0\n")
    with pytest.raises(InputError, match=r"data.py:3: ZeroDivisionError: division by zero"):
        load_metric(workspace, "data:own")({}, None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param("", "`precision: int8` is proven on samples: write `verify", id="no data"),
        pytest.param(
            "verify: {data: 'a:b', calibration: 'a:b'}",
            "`calibration` and `data` are both `a:b`",
            id="one function for both",
        ),
        pytest.param(
            "verify: {data: 'a:b'}\nquantize: {method: static}",
            "static INT8 measures ranges: write `verify: {calibration:",
            id="nothing to calibrate with",
        ),
        pytest.param("verify: {data: a}", "`a` is not `module:function`, or an", id="no address"),
        pytest.param(
            "verify: {data: '../a.npz'}", "`../a.npz` is not `module:function`", id="outside"
        ),
        pytest.param(
            "verify: {data: 'a:b', metric: cosinus}",
            "`cosinus` is not one of agreement, cosine",
            id="no metric",
        ),
        pytest.param(
            "verify: {data: 'a:b', max_drop: -1}", "greater than or equal to 0", id="a drop below 0"
        ),
        pytest.param(
            "verify: {data: 'a:b'}\nquantize: {method: best}", "'auto', 'static'", id="no method"
        ),
    ],
)
def test_options_that_prove_nothing_are_mistakes_of_model_yaml(
    workspace: Path, more: str, said: str
) -> None:
    space = write_model(workspace, "net", f"{YAML}{more}\n")
    with pytest.raises(InvalidFiles, match="Y005") as caught:
        read_model(space, "net")
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("source: {onnx: a.onnx}\nquantize: {method: static}\n", "`quantize` is for other"),
        (
            "source: {python: m.py}\ninputs: {x: fp32}\noutputs: {y: fp32}\nprecision: fp16\n"
            "verify: {data: 'a:b'}\n",
            "`precision` is for sources that are exported to ONNX",
        ),
    ],
)
def test_precision_is_for_onnx_files(workspace: Path, yaml: str, said: str) -> None:
    space = write_model(workspace, "net", yaml)
    with pytest.raises(InvalidFiles, match=said):
        read_model(space, "net")


def key_of(root: Path, more: str) -> str:
    space = write_model(root, "net", f"{YAML}{more}\n", net_onnx="weights")
    return build_key(space, read_model(space, "net"))


VERIFY = "verify: {calibration: 'data:one', data: 'data:other'}"


@pytest.mark.parametrize(
    ("other", "is_new"),
    [
        (f"{VERIFY}\nquantize: {{exclude_nodes: [a]}}", True),
        ("verify: {calibration: 'data:other', data: 'data:one'}", True),
        (VERIFY.replace("}", ", metric: cosine}"), True),
        (VERIFY.replace("}", ", min: 0.5, max_drop: 3}"), False),
        (f"{VERIFY}\nbatching: {{max_batch: 4}}", False),
    ],
)
def test_what_a_conversion_rests_on_is_part_of_the_version(
    workspace: Path, other: str, is_new: bool
) -> None:
    write_samples(workspace, "data", GOOD)
    assert (key_of(workspace, VERIFY) != key_of(workspace, other)) is is_new


def test_the_text_of_a_generator_is_part_of_the_version(workspace: Path) -> None:
    write_samples(workspace, "data", GOOD)
    before = key_of(workspace, VERIFY)
    write_samples(workspace, "data", GOOD + "# more\n")
    assert key_of(workspace, VERIFY) != before
    (workspace / "calibration" / "data.py").unlink()
    with pytest.raises(InputError, match=r"calibration/data.py does not exist"):
        key_of(workspace, VERIFY)
