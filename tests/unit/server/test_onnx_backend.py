"""How the ONNX backend loads and answers: real sessions, no server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx_backend_alone import InferenceResponse, Logger, Request, TritonError, load_backend
from onnx_refusals import LOAD_ERRORS
from onnx_samples import (
    DOUBLED,
    LOOKUP,
    OPTIONAL,
    PAIR,
    SCALED,
    SHORT,
    TEXTS,
    TOGETHER,
    Sample,
    custom,
    parameters,
    port,
)


@pytest.fixture
def backend(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_backend(root, monkeypatch)


Load = Callable[..., Any]


@pytest.fixture
def load(backend: ModuleType, tmp_path: Path) -> Load:
    """Writes a sample and initialises the backend's class with it."""

    def load(sample: Sample, instance: int = 0) -> Any:
        sample.write(tmp_path)
        model = backend.TritonPythonModel()
        model.initialize(
            {
                "model_name": sample.name,
                "model_repository": str(tmp_path / sample.name),
                "model_version": "1",
                "model_instance_name": f"{sample.name}_0_{instance}",
                "model_config": json.dumps(sample.config()),
            }
        )
        return model

    return load


def infer(model: Any, *requests: dict[str, Any]) -> list[InferenceResponse]:
    return list(model.execute([Request(inputs) for inputs in requests]))


def rows(count: int, start: float = 0) -> np.ndarray:
    return np.arange(start, start + count * 4, dtype=np.float32).reshape(count, 4)


# ---------------------------------------------------------------- loading


@pytest.mark.parametrize(("sample", "text"), LOAD_ERRORS.values(), ids=LOAD_ERRORS)
def test_a_misfit_is_refused_in_the_words_of_the_c_backend(
    load: Load, tmp_path: Path, sample: Sample, text: str
) -> None:
    with pytest.raises(Exception) as refusal:  # noqa: PT011 - the class is named by the status
        load(sample)
    said = f"{refusal.type.__name__}: {refusal.value}"
    assert said == text.replace("{version}", str(tmp_path / "M" / "1"))


@pytest.mark.parametrize(
    ("given", "instances", "threads"),
    [
        pytest.param({}, 1, 8, id="one instance takes all cores"),
        pytest.param({}, 3, 2, id="instances share the cores"),
        pytest.param({}, 20, 1, id="at least one each"),
        pytest.param({"intra_op_thread_count": " 5x"}, 3, 5, id="the leading number is obeyed"),
        pytest.param({"intra_op_thread_count": "-1"}, 2, 4, id="not positive means the share"),
    ],
)
def test_threads(
    backend: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    instances: int,
    threads: int,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    options = backend.session_options(read(backend, instances=instances, more=parameters(**given)))
    assert options.intra_op_num_threads == threads
    for kind in ("intra", "inter"):
        assert options.get_session_config_entry(f"session.{kind}_op.allow_spinning") == "0"


def test_the_parameters_of_the_c_backend_reach_the_session(backend: ModuleType) -> None:
    more = parameters(
        execution_mode="1",
        inter_op_thread_count="3",
        enable_mem_arena="FALSE",
        enable_mem_pattern="off",
        a_key_of_the_users_own="kept for somebody else",
    )
    options = backend.session_options(read(backend, more=more))
    assert options.execution_mode.name == "ORT_PARALLEL"
    assert options.inter_op_num_threads == 3
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern


@pytest.mark.parametrize(
    ("optimization", "level"),
    [
        ({}, "ORT_ENABLE_ALL"),
        ({"graph": {"level": -1}}, "ORT_ENABLE_BASIC"),
        ({"graph": {"level": 1}}, "ORT_ENABLE_EXTENDED"),
        ({"graph": {"level": 2}}, "ORT_DISABLE_ALL"),
        ({"graph": {"level": 7}}, "ORT_ENABLE_ALL"),
    ],
)
def test_graph_levels(backend: ModuleType, optimization: dict[str, Any], level: str) -> None:
    options = backend.session_options(read(backend, more={"optimization": optimization}))
    assert options.graph_optimization_level.name == level


def read(backend: ModuleType, **sample: Any) -> Any:
    config = Sample("M", **sample).config()
    return backend.rules.read_config(config)


def test_accelerators_are_logged_by_the_first_instance_only(load: Load) -> None:
    accelerators = {
        "gpu_execution_accelerator": [{"name": "tensorrt"}],
        "cpu_execution_accelerator": [{"name": "openvino"}],
    }
    more = {"optimization": {"execution_accelerators": accelerators}}
    load(Sample("fast", more=more))
    load(Sample("fast2", more=more), instance=1)
    assert Logger.lines == ["model 'fast' runs on CPU, without: tensorrt, openvino"]


@pytest.mark.parametrize("filename", ["net.onnx", "sub/net.onnx", "folder/model.onnx"])
def test_the_model_file_may_have_another_name(load: Load, filename: str) -> None:
    model = load(Sample("named", more={"default_model_filename": filename}))
    assert infer(model, {"x": rows(1)})[0].error is None


def test_a_folder_stands_for_the_model_in_it(load: Load, tmp_path: Path) -> None:
    sample = Sample("foldered", more={"default_model_filename": "net/model.onnx"})
    model = load(sample)
    model.initialize(
        {
            "model_name": "foldered",
            "model_repository": str(tmp_path / "foldered"),
            "model_version": "1",
            "model_instance_name": "foldered_0_0",
            "model_config": json.dumps({**sample.config(), "default_model_filename": "net"}),
        }
    )
    assert infer(model, {"x": rows(2)})[0].outputs["y"].shape == (2, 4)


# ---------------------------------------------------------------- answering


def test_requests_are_joined_and_each_gets_its_own_rows(load: Load) -> None:
    model = load(Sample("identity"))
    sent = [rows(2), rows(1, 100), rows(3, 200)]
    answers = infer(model, *({"x": x} for x in sent))
    for answer, x in zip(answers, sent, strict=True):
        np.testing.assert_array_equal(answer.outputs["y"], x)


def test_a_joined_execute_runs_once(load: Load) -> None:
    answers = infer(load(TOGETHER), {"x": rows(2)}, {"x": rows(3)})
    assert [answer.outputs["y"].shape for answer in answers] == [(2, 4), (3, 4)]
    assert {float(value) for answer in answers for value in answer.outputs["y"].flat} == {5.0}


def test_outputs_come_sorted_by_name_and_once(load: Load) -> None:
    graph = custom(
        {"x": ("FLOAT", ["N", 4])},
        {"zeta": ("FLOAT", ["N", 4]), "alpha": ("FLOAT", ["N", 4]), "Beta": ("FLOAT", ["N", 4])},
        *(("Identity", ["x"], [name], {}) for name in ("zeta", "alpha", "Beta")),
    )
    outputs = [port(name, "FP32", 4) for name in ("zeta", "alpha", "Beta", "alpha")]
    model = load(Sample("sorted", graph, outputs=outputs))
    assert list(infer(model, {"x": rows(1)})[0].outputs) == ["Beta", "alpha", "zeta"]


def test_a_bad_request_does_not_fail_its_neighbours(load: Load) -> None:
    answers = infer(load(LOOKUP), {"x": [[1]]}, {"x": [[7]]}, {"x": [[2]]})
    assert [answer.error is None for answer in answers] == [True, False, True]
    assert answers[0].outputs["y"].item() == 1
    assert answers[2].outputs["y"].item() == 2
    assert answers[1].error is not None
    assert answers[1].error.message.startswith("onnx runtime error 2: Non-zero status code")
    assert answers[1].error.code == TritonError.INTERNAL


def strings(*values: bytes) -> np.ndarray:
    return np.array(values, dtype=np.object_).reshape(-1, 1)


def test_strings_are_text_cut_at_the_first_nul(load: Load) -> None:
    sent = strings("grüße 你好".encode(), b"", b"a\0b")
    [answer] = infer(load(TEXTS), {"x": sent})
    assert answer.outputs["y"].tolist() == [["grüße 你好"], [""], ["a"]]


def test_bytes_that_are_not_utf8_are_refused_alone(load: Load) -> None:
    good, bad = infer(load(TEXTS), {"x": strings(b"fine")}, {"x": strings(b"\xff\xfe")})
    assert good.outputs["y"].tolist() == [["fine"]]
    assert bad.error is not None
    assert bad.error.message == (
        "input 'x' holds bytes that are not UTF-8; the embedded server takes UTF-8 only"
    )


def test_too_few_rows_fail_the_requests_that_miss_theirs(load: Load) -> None:
    model = load(SHORT)
    first, second, third = model.execute(
        [Request({"x": rows(1)}), Request({"x": rows(1)}), Request({"x": rows(1)}, "r3")]
    )
    assert first.error is None
    assert second.error.code == third.error.code == TritonError.UNSUPPORTED
    assert second.error.message == (
        "[request id: <id_unknown>] failed to split the output tensor 'y' in responses: "
        "expected batch size of at least 2 in model output, got 1"
    )
    assert third.error.message == (
        "[request id: r3] failed to split the output tensor 'y' in responses: "
        "expected batch size of at least 3 in model output, got 1"
    )


def test_surplus_rows_are_an_error_not_dropped(load: Load) -> None:
    [answer] = infer(load(DOUBLED), {"x": rows(2)})
    assert answer.error is not None
    assert answer.error.message.endswith("expected batch size of 2 in model output, got 4")


def test_requests_with_different_scalars_run_apart(load: Load) -> None:
    two, ten, mixed = infer(
        load(SCALED),
        {"x": rows(2), "s": np.float32([2, 2])},
        {"x": rows(1), "s": np.float32([10])},
        {"x": rows(2), "s": np.float32([1, 2])},
    )
    np.testing.assert_array_equal(two.outputs["y"], rows(2) * 2)
    np.testing.assert_array_equal(ten.outputs["y"], rows(1) * 10)
    assert mixed.error is not None
    assert mixed.error.message == "scalar input 's' takes one value for all rows of a request"


@pytest.mark.parametrize(
    ("entry", "shape"),
    [
        pytest.param(port("total", "FP32", 1), (1, 1), id="dims of the config"),
        pytest.param(port("total", "FP32", 1, reshape={"shape": []}), (1,), id="empty reshape"),
    ],
)
def test_a_scalar_output_of_one_row_has_the_shape_of_the_config(
    load: Load, entry: dict[str, Any], shape: tuple[int, ...]
) -> None:
    model = load(replace(SCALED, outputs=[entry]))
    [one] = infer(model, {"x": rows(1), "s": np.float32([1])})
    assert one.outputs["total"].shape == shape
    [two] = infer(model, {"x": rows(2), "s": np.float32([1, 1])})
    assert two.error is not None
    assert "expected batch size of at least 2 in model output, got 1" in two.error.message


def test_an_optional_input_has_its_default_again_in_the_next_request(load: Load) -> None:
    model = load(OPTIONAL)
    x = rows(2)
    for given, factor in (({}, 2), ({"scale": np.float32([5])}, 5), ({}, 2)):
        [answer] = infer(model, {"x": x, **given})
        np.testing.assert_array_equal(answer.outputs["y"], x * factor)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int64)


def test_a_mismatching_request_is_told_tensor_and_shapes(load: Load) -> None:
    good, bad = infer(
        load(PAIR), {"ids": ones(1, 3), "mask": ones(1, 3)}, {"ids": ones(1, 3), "mask": ones(1, 2)}
    )
    assert good.error is None
    assert bad.error is not None
    assert bad.error.message.startswith("onnx runtime error")
    assert bad.error.message.endswith("; input 'mask': expected shape [1,3], got [1,2]")


def test_requests_of_different_lengths_run_apart(load: Load) -> None:
    lengths = (3, 5, 3)
    answers = infer(load(PAIR), *({"ids": ones(1, n), "mask": ones(1, n)} for n in lengths))
    assert [answer.outputs["y"].shape for answer in answers] == [(1, n) for n in lengths]


def test_a_wrong_arena_list_fails_each_request_like_the_c_backend(load: Load) -> None:
    key = "memory.enable_memory_arena_shrinkage"
    [answer] = infer(load(Sample("shrunk", more=parameters(**{key: "nonsense"}))), {"x": rows(1)})
    assert answer.error is not None
    assert answer.error.message == (
        "onnx runtime error 2: "
        "Unsupported device specified in the memory arena shrink list: nonsense"
    )
