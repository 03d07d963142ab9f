"""The runner of Python steps: joins requests, calls the step, checks what comes back."""

from __future__ import annotations

import ast
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_metrics import FakeMetrics
from hypothesis import given
from hypothesis import strategies as st

from mmctl.compiler.shipped import step_model
from mmctl.compiler.shipped.model_counters import FAILURES
from mmctl.compiler.shipped.step_model import StepError, Steps, TritonPythonModel
from mmctl.compiler.shipped.step_tensors import NUMPY

SHIPPED = sorted(Path(step_model.__file__).parent.glob("*.py"))


def tensor(name: str, kind: str = "fp32", dims: tuple[int, ...] = (), **more: Any) -> Any:
    return {"name": name, "dtype": kind, "dims": list(dims), **more}


def plan(inputs: list[Any], outputs: list[Any], **changed: Any) -> dict[str, Any]:
    """A model of one step that gives all its outputs."""
    entry = {
        "step": "words", "module": "steps", "function": "f", "options": None, "rows": False,
        "inputs": [{**given, "from": ["", given["name"]]} for given in inputs], "gives": outputs,
    }  # fmt: skip
    for key in changed.keys() & entry.keys():
        entry[key] = changed.pop(key)
    shown = [{"name": output["name"], "from": ["words", output["name"]]} for output in outputs]
    return {
        "schema": 2, "inputs": inputs, "steps": [entry], "outputs": shown,
        "batched": True, "join": True, **changed,
    }  # fmt: skip


def step(
    function: Callable[..., Any], inputs: list[Any], outputs: list[Any], **changed: Any
) -> Steps:
    return Steps(plan(inputs, outputs, **changed), [function])


def floats(*rows: float) -> Any:
    """As Triton sends one value per row: [batch, 1]."""
    return np.array(rows, np.float32)[:, None]


def texts(*rows: str | bytes) -> Any:
    encoded = [row.encode() if isinstance(row, str) else row for row in rows]
    return np.array(encoded, object)[:, None]


def values(outcome: Any, name: str = "y") -> list[Any]:
    assert not isinstance(outcome, StepError), outcome
    found: list[Any] = outcome[name].tolist()
    return found


def said(outcome: Any) -> str:
    assert isinstance(outcome, StepError)
    return str(outcome)


def test_one_value_per_row_reaches_the_step_as_one_axis() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(x.shape)
        return {"y": x * 2}

    [outcome] = step(f, [tensor("x")], [tensor("y")]).run([{"x": floats(1, 2)}])
    assert values(outcome) == [2, 4]
    assert seen == [(2,)]


def test_text_reaches_the_step_as_str_and_leaves_it_as_utf8() -> None:
    def f(x: Any) -> Any:
        return {"y": [f"{text}!" for text in x]}

    model = step(f, [tensor("x", "string")], [tensor("y", "string")])
    [outcome] = model.run([{"x": texts("你好", "café")}])
    assert values(outcome) == ["你好!".encode(), "café!".encode()]


@pytest.mark.parametrize("rows", [False, True], ids=["batches", "row by row"])
def test_bytes_go_through_as_they_are(rows: bool) -> None:
    raw = b"\xff\x00ab\x00\x00"
    model = step(lambda x: {"y": x}, [tensor("x", "bytes")], [tensor("y", "bytes")], rows=rows)
    [outcome] = model.run([{"x": texts(raw, b"")}])
    assert values(outcome) == [raw, b""]


def test_requests_are_served_by_one_call() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(len(x))
        return {"y": x + 1}

    model = step(f, [tensor("x")], [tensor("y")])
    outcomes = model.run([{"x": floats(1)}, {"x": floats(2, 3)}, {"x": floats(4)}])
    assert [values(outcome) for outcome in outcomes] == [[2], [3, 4], [5]]
    assert calls == [4]


def test_requests_whose_rows_differ_in_shape_are_not_joined() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(x.shape)
        return {"y": x.sum(axis=1)}

    model = step(f, [tensor("x", dims=(-1,))], [tensor("y")])
    sizes = (2, 3, 2)
    outcomes = model.run([{"x": np.ones((1, size), np.float32)} for size in sizes])
    assert [values(outcome) for outcome in outcomes] == [[2], [3], [2]]
    assert sorted(calls) == [(1, 3), (2, 2)]


def test_a_step_may_want_each_request_for_itself() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(len(x))
        return {"y": x}

    step(f, [tensor("x")], [tensor("y")], join=False).run([{"x": floats(1)}, {"x": floats(2, 3)}])
    assert calls == [1, 2]


def test_when_a_joined_call_raises_only_the_bad_request_fails() -> None:
    def f(x: Any) -> Any:
        if (x < 0).any():
            raise ValueError("no negative numbers")
        return {"y": x}

    model = step(f, [tensor("x")], [tensor("y")])
    first, bad, last = model.run([{"x": floats(1)}, {"x": floats(2, -1)}, {"x": floats(3)}])
    assert (values(first), values(last)) == ([1], [3])
    assert said(bad).startswith("ValueError: no negative numbers")


def test_a_bad_request_is_found_when_only_the_answer_is_wrong() -> None:
    model = step(lambda x: {"y": x[x > 0]}, [tensor("x")], [tensor("y")])
    good, bad = model.run([{"x": floats(1)}, {"x": floats(-1)}])
    assert values(good) == [1]
    assert "has shape [0], expected [1]" in said(bad)


def test_text_that_is_not_utf8_fails_only_its_own_request() -> None:
    model = step(lambda x: {"y": x}, [tensor("x", "string")], [tensor("y", "string")])
    good, bad = model.run([{"x": texts("a")}, {"x": texts(b"ab\xff")}])
    assert values(good) == [b"a"]
    assert said(bad) == "`x` is not UTF-8: invalid start byte at byte 2"


def test_a_step_that_ends_the_process_fails_only_its_request() -> None:
    def f(x: Any) -> Any:
        sys.exit("bye")

    [outcome] = step(f, [tensor("x")], [tensor("y")]).run([{"x": floats(1)}])
    assert said(outcome).startswith("SystemExit: bye")


@pytest.mark.parametrize(
    ("returned", "output", "problem"),
    [
        pytest.param({"z": 1}, tensor("y"), "output `y` is missing: the step returned `z`",
                     id="a missing output"),
        pytest.param({}, tensor("y"), "output `y` is missing: the step returned nothing",
                     id="no output"),
        pytest.param([1], tensor("y"), "it returned list, expected a dict of arrays",
                     id="not a dict"),
        pytest.param({"y": np.ones(3, np.float32)}, tensor("y"),
                     "output `y` has shape [3], expected [2] (fp32 for a batch of 2)",
                     id="another batch"),
        pytest.param({"y": np.ones((2, 1), np.float32)}, tensor("y"),
                     "output `y` has shape [2, 1], expected [2] (fp32 for a batch of 2)",
                     id="another rank"),
        pytest.param({"y": np.ones((2, 5), np.float32)}, tensor("y", dims=(4,)),
                     "output `y` has shape [2, 5], expected [2, 4] (fp32[4] for a batch of 2)",
                     id="another size"),
        pytest.param({"y": [[1.0], [1.0, 2.0]]}, tensor("y", dims=(-1,)),
                     "output `y` is ragged: its rows differ in shape", id="ragged rows"),
        pytest.param({"y": np.ones(2, np.int64)}, tensor("y"),
                     "output `y` is int64, declared fp32", id="whole numbers for fractions"),
        pytest.param({"y": np.ones(2, np.float32)}, tensor("y", "int32"),
                     "output `y` is float32, declared int32", id="fractions for whole numbers"),
        pytest.param({"y": ["a", "b"]}, tensor("y"), "output `y` is <U1, declared fp32",
                     id="text for numbers"),
        pytest.param({"y": np.array([1, 2**40])}, tensor("y", "int32"),
                     "output `y` holds values beyond int32", id="numbers that would wrap"),
        pytest.param({"y": ["a", 3.5]}, tensor("y", "string"),
                     "output `y` holds float, declared string", id="numbers for text"),
        pytest.param({"y": ["a", b"b"]}, tensor("y", "string"),
                     "output `y` holds bytes, declared string", id="bytes for text"),
        pytest.param({"y": ["a", "b"]}, tensor("y", "bytes"),
                     "output `y` holds str, declared bytes", id="text for bytes"),
        pytest.param({"y": ["a", "\ud800"]}, tensor("y", "string"),
                     "output `y` holds text that UTF-8 cannot write", id="half a character"),
    ],
)  # fmt: skip
def test_a_wrong_answer_of_a_step_is_named(returned: Any, output: Any, problem: str) -> None:
    [outcome] = step(lambda x: returned, [tensor("x")], [output]).run([{"x": floats(1, 2)}])
    assert said(outcome) == problem


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        pytest.param([1.5, 2.5], tensor("y"), id="a list"),
        pytest.param(np.array([1.5, 2.5]), tensor("y"), id="float64 for fp32"),
        pytest.param([1, 2], tensor("y", "int32"), id="int64 for int32"),
        pytest.param([True, False], tensor("y", "bool"), id="booleans"),
        pytest.param(np.array([1, 2], np.uint8), tensor("y", "uint8"), id="the exact type"),
        pytest.param(np.ones((2, 7), np.float32), tensor("y", dims=(-1,)), id="a free axis"),
    ],
)
def test_what_numpy_gives_by_default_is_taken(returned: Any, output: Any) -> None:
    [outcome] = step(lambda x: {"y": returned}, [tensor("x")], [output]).run([{"x": floats(1, 2)}])
    assert values(outcome) == np.asarray(returned).tolist()
    assert outcome["y"].dtype == NUMPY[output["dtype"]]  # type: ignore[index]


def test_an_output_can_be_shown_under_two_names() -> None:
    settings = plan([tensor("x")], [tensor("y")])
    settings["outputs"].append({"name": "y__score", "from": ["words", "y"]})
    [outcome] = Steps(settings, [lambda x: {"y": x}]).run([{"x": floats(3)}])
    assert values(outcome) == values(outcome, "y__score") == [3]


def test_an_optional_input_that_is_left_out_is_none() -> None:
    def f(x: Any, extra: Any) -> Any:
        return {"y": x if extra is None else x + extra}

    model = step(f, [tensor("x"), tensor("extra", optional=True)], [tensor("y")])
    requests = [{"x": floats(1), "extra": None}, {"x": floats(2), "extra": floats(5)}]
    assert [values(outcome) for outcome in model.run(requests)] == [[1], [7]]


def test_a_required_input_that_is_left_out_is_an_error() -> None:
    [outcome] = step(lambda x: {"y": x}, [tensor("x")], [tensor("y")]).run([{"x": None}])
    assert said(outcome) == "input `x` is missing"


def test_a_function_of_one_row_gets_rows_without_batch_axis() -> None:
    seen = []

    def f(text: str, v: Any) -> Any:
        seen.append((text, v.shape))
        return {"y": text.upper(), "n": v.sum()}

    inputs = [tensor("text", "string"), tensor("v", dims=(2,))]
    model = step(f, inputs, [tensor("y", "string"), tensor("n")], rows=True)
    request = {"text": texts("a", "b"), "v": np.ones((2, 2), np.float32)}
    [outcome] = model.run([request])
    assert (values(outcome), values(outcome, "n")) == ([b"A", b"B"], [2, 2])
    assert seen == [("a", (2,)), ("b", (2,))]


def test_rows_of_different_shapes_are_an_error() -> None:
    def f(x: Any) -> Any:
        return {"y": np.ones(int(x), np.float32)}

    model = step(f, [tensor("x")], [tensor("y", dims=(-1,))], rows=True)
    [outcome] = model.run([{"x": floats(1, 2)}])
    assert said(outcome) == "output `y`: its rows differ in shape: [1], [2]"


def test_without_batch_axis_a_step_sees_a_batch_of_one() -> None:
    def f(x: Any) -> Any:
        assert x.shape == (1, 3)
        return {"y": x.sum(axis=1)}

    model = step(f, [tensor("x", dims=(3,))], [tensor("y")], batched=False)
    [outcome] = model.run([{"x": np.ones(3, np.float32)}])
    assert values(outcome) == [3]


def test_a_ready_made_step_speaks_for_itself() -> None:
    def f(x: Any) -> Any:
        raise ValueError("`image`: not an image that Pillow can read")

    [outcome] = step(f, [tensor("x")], [tensor("y")], options={}).run([{"x": floats(1)}])
    assert said(outcome) == "`image`: not an image that Pillow can read"


@given(st.lists(st.lists(st.integers(-3, 100), min_size=1, max_size=4), min_size=1, max_size=6))
def test_joining_changes_no_answer(requests: list[list[int]]) -> None:
    """Batch law, and bad requests among good ones: each is answered as it would be alone."""

    def f(x: Any) -> Any:
        if (x < 0).any():
            raise ValueError("negative")
        return {"y": x * 2}

    model = step(f, [tensor("x")], [tensor("y")])
    sent = [{"x": floats(*rows)} for rows in requests]
    for together, request in zip(model.run(sent), sent, strict=True):
        [alone] = model.run([request])
        if isinstance(alone, StepError):
            assert isinstance(together, StepError)
        else:
            assert values(together) == values(alone)


class FakeRequest:
    """A request as Triton's Python backend hands it over."""

    def __init__(self, tensors: Mapping[str, Any], wanted: list[str]) -> None:
        self.tensors = tensors
        self.wanted = wanted

    def requested_output_names(self) -> list[str]:
        return self.wanted


class FakeTensor:
    def __init__(self, name: str, array: Any) -> None:
        assert array.flags.c_contiguous, "Triton reads memory in its order"
        self.name = name
        self.array = array

    def as_numpy(self) -> Any:
        return self.array


def fake_backend(metrics: FakeMetrics) -> Any:
    """The part of triton_python_backend_utils that the runner uses."""
    return SimpleNamespace(
        MetricFamily=metrics.MetricFamily,
        Tensor=FakeTensor,
        TritonError=str,
        InferenceResponse=lambda output_tensors, error=None: SimpleNamespace(
            outputs={t.name: t.array for t in output_tensors}, error=error
        ),
        get_input_tensor_by_name=lambda request, name: request.tensors.get(name),
    )


@pytest.fixture
def metrics() -> FakeMetrics:
    return FakeMetrics()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: FakeMetrics) -> Iterator[Path]:
    """A version folder with the runner, where it may import from, and a backend to import."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake_backend(metrics))
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(step_model, "__file__", str(tmp_path / "model.py"))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded(folder: Path, steps: str, settings: Mapping[str, Any] | None = None) -> Any:
    (folder / "steps.py").write_text(steps)
    settings = settings or plan([tensor("x")], [tensor("y"), tensor("z")])
    (folder / "step.json").write_text(json.dumps(settings))
    model = TritonPythonModel()
    model.initialize({"model_name": "demo__words"})
    return model


def test_the_model_answers_what_was_asked_for_in_tritons_shapes(folder: Path) -> None:
    model = loaded(folder, "def f(x):\n    return {'y': x * 2, 'z': x}\n")
    request = FakeRequest({"x": FakeTensor("x", floats(1, 2))}, ["y"])
    [response] = model.execute([request])
    assert response.error is None
    assert {name: array.tolist() for name, array in response.outputs.items()} == {"y": [[2], [4]]}


ODD = """
CALLS = []

def f(x):
    CALLS.append(len(x))
    if (x == 13).any():
        raise ValueError("thirteen")
    return {"y": x * 2, "z": x}
"""


def asked(*rows: float) -> FakeRequest:
    return FakeRequest({"x": FakeTensor("x", floats(*rows))}, ["y"])


def test_requests_that_can_be_joined_are_one_call_and_each_gets_its_rows(folder: Path) -> None:
    model = loaded(folder, ODD)
    responses = model.execute([asked(1, 2), asked(3), asked(4, 5)])
    answers = [response.outputs["y"].tolist() for response in responses]
    assert answers == [[[2], [4]], [[6]], [[8], [10]]]
    assert sys.modules["steps"].CALLS == [5]


def test_one_that_fails_a_joined_call_fails_alone(folder: Path) -> None:
    model = loaded(folder, ODD)
    first, bad, last = model.execute([asked(1), asked(13), asked(4, 5)])
    assert first.outputs["y"].tolist() == [[2]]
    assert bad.error == "step `words`: ValueError: thirteen (steps.py, line 7)"
    assert last.outputs["y"].tolist() == [[8], [10]]
    assert sys.modules["steps"].CALLS == [4, 1, 1, 2]


def test_requests_of_different_shapes_are_called_apart(folder: Path) -> None:
    inputs, outputs = [tensor("x", dims=(-1,))], [tensor("y", dims=(-1,))]
    model = loaded(folder, "def f(x):\n    return {'y': x}\n", plan(inputs, outputs))
    requests = [
        FakeRequest({"x": FakeTensor("x", np.full((1, size), size, np.float32))}, ["y"])
        for size in (2, 3, 2)
    ]
    answers = [response.outputs["y"].tolist() for response in model.execute(requests)]
    assert answers == [[[2, 2]], [[3, 3, 3]], [[2, 2]]]


def test_the_model_answers_with_a_view_that_does_not_lie_in_order(folder: Path) -> None:
    settings = plan([tensor("x", dims=(2,))], [tensor("y", dims=(2,))])
    model = loaded(folder, "def f(x):\n    return {'y': x[:, ::-1]}\n", settings)
    x = np.array([[1, 2], [3, 4]], np.float32)
    [response] = model.execute([FakeRequest({"x": FakeTensor("x", x)}, ["y"])])
    assert response.outputs["y"].tolist() == [[2, 1], [4, 3]]


def test_without_batch_axis_the_model_answers_without_one(folder: Path) -> None:
    inputs, outputs = [tensor("x", dims=(3,))], [tensor("y"), tensor("z", dims=(3,))]
    settings = plan(inputs, outputs, batched=False)
    model = loaded(folder, "def f(x):\n    return {'y': x.sum(axis=1), 'z': x}\n", settings)
    x = FakeTensor("x", np.ones(3, np.float32))
    [response] = model.execute([FakeRequest({"x": x}, ["y", "z"])])
    assert [response.outputs[name].tolist() for name in "yz"] == [[3], [1, 1, 1]]


def test_an_answer_that_is_an_error_is_counted(folder: Path, metrics: FakeMetrics) -> None:
    """Triton takes it for an answer."""
    model = loaded(folder, "def f(x):\n    assert (x > 0).all()\n    return {'y': x, 'z': x}\n")
    failures = (FAILURES, "error")
    assert (metrics.models, metrics.shown) == ({"demo__words"}, {failures: 0})
    good, bad = (FakeRequest({"x": FakeTensor("x", floats(x))}, ["y"]) for x in (1, -1))
    for requests, count in (([good], 0), ([bad], 1), ([good, bad, bad], 3)):
        model.execute(requests)
        assert metrics.shown == {failures: count}
    assert metrics.tellers == {threading.get_ident()}, "only the thread that executes may tell"


def test_an_error_names_the_step_and_the_line(folder: Path) -> None:
    model = loaded(folder, "def f(x):\n    return g(x)\ndef g(x):\n    raise KeyError('word')\n")
    [response] = model.execute([FakeRequest({"x": FakeTensor("x", floats(1))}, ["y"])])
    assert response.error == "step `words`: KeyError: 'word' (steps.py, line 4)"
    assert response.outputs == {}


def test_a_step_may_import_modules_beside_it_and_shared_ones(folder: Path) -> None:
    (folder / "common").mkdir()
    (folder / "beside.py").write_text("ONE = 1\n")
    (folder / "common" / "shared.py").write_text("TWO = 2\n")
    model = loaded(
        folder,
        "from beside import ONE\nfrom shared import TWO\nfrom common.shared import TWO as AGAIN\n"
        "def f(x):\n    return {'y': x + ONE, 'z': x + TWO + AGAIN}\n",
    )
    [response] = model.execute([FakeRequest({"x": FakeTensor("x", floats(1))}, ["y", "z"])])
    assert [array.tolist() for array in response.outputs.values()] == [[[2]], [[5]]]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        pytest.param("import no_such_library\n",
                     "step `words` cannot be loaded: ModuleNotFoundError: "
                     "No module named 'no_such_library'", id="a missing library"),
        pytest.param("def g(x): ...\n", "step `words` cannot be loaded: AttributeError: "
                     "module 'steps' has no attribute 'f'", id="a missing function"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_loaded_says_which(folder: Path, steps: str, message: str) -> None:
    with pytest.raises(RuntimeError, match="^" + message.replace("`", ".") + "$"):
        loaded(folder, steps)


def test_data_of_another_mmctl_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"step.json has schema 1, this model.py reads 2"):
        loaded(folder, "", plan([], [], schema=1))


def run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All but what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (found for part in node.orelse for found in (part, *run_nodes(part)))
        else:
            yield from run_nodes(node)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_files_are_python_3_10_and_stand_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    imported = set()
    for node in run_nodes(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    beside = {path.stem for path in SHIPPED}
    libraries = {"numpy", "PIL", "tokenizers", "triton_python_backend_utils"}
    assert imported <= {*sys.stdlib_module_names, *libraries, *beside}
