"""ONNX models on the embedded server: onnxruntime's answers, and the C++ backend's words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx_refusals import LOAD_ERRORS
from onnx_samples import (
    CONTROLLED,
    DOUBLED,
    EMPTY,
    EVERY_TYPE,
    LOOKUP,
    MLP,
    NAMED,
    OPTIONAL,
    PAIR,
    SCALED,
    SHORT,
    TEXTS,
    TOGETHER,
    TOTAL,
    TUNED,
    TWO,
    TYPES,
    Sample,
    mlp,
)
from servers import Serve

from mmctl.server.process import EmbeddedTriton

pytestmark = pytest.mark.live

SERVED = (
    CONTROLLED, DOUBLED, EMPTY, EVERY_TYPE, LOOKUP, MLP, OPTIONAL, PAIR, SCALED, SHORT, TEXTS,
    TOGETHER, TOTAL, TUNED, TWO, *NAMED,
)  # fmt: skip


class Counts(NamedTuple):
    """What a model has done so far."""

    rows: int
    runs: int


class Server:
    """The server of this file: answers as arrays, refusals as (status, text)."""

    def __init__(self, running: EmbeddedTriton, repository: Path) -> None:
        from tritonclient.grpc import InferenceServerClient

        self.client = InferenceServerClient(running.grpc)
        self.headers = running.headers
        self.repository = repository
        self.log = running.log

    def infer(self, model: str, inputs: Mapping[str, np.ndarray], **more: Any) -> dict[str, Any]:
        from tritonclient.grpc import InferInput
        from tritonclient.utils import np_to_triton_dtype

        tensors = []
        for name, array in inputs.items():
            tensor = InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
            tensors.append(tensor.set_data_from_numpy(array))
        result = self.client.infer(model, tensors, **more)
        return {port.name: result.as_numpy(port.name) for port in result.get_response().outputs}

    def load(self, model: str) -> None:
        self.client.load_model(model, headers=self.headers)

    def refusal(self, call: Callable[[], object]) -> tuple[str, str]:
        from tritonclient.utils import InferenceServerException

        with pytest.raises(InferenceServerException) as refusal:
            call()
        return str(refusal.value.status()), str(refusal.value.message())

    def counts(self, model: str, at_least: int = 0) -> Counts:
        """Waits for `at_least` rows, because Triton answers before it counts."""
        deadline = time.monotonic() + 10
        while True:
            [stats] = self.client.get_inference_statistics(model).model_stats
            if stats.inference_count >= at_least:
                return Counts(stats.inference_count, stats.execution_count)
            assert time.monotonic() < deadline, f"`{model}` ran {stats.inference_count} rows only"
            time.sleep(0.01)


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    pytest.importorskip("onnx")
    repository = tmp_path_factory.mktemp("models")
    for sample in SERVED:
        sample.write(repository)
    return Server(serve(repository), repository)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture(scope="module")
def reference() -> Callable[[np.ndarray], np.ndarray]:
    """The MLP in this process."""
    import onnxruntime as ort

    session = ort.InferenceSession(mlp(), providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def noise(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)


def rows(count: int, start: float = 0) -> np.ndarray:
    return np.arange(start, start + count * 4, dtype=np.float32).reshape(count, 4)


def strings(*values: bytes) -> np.ndarray:
    return np.array(values, dtype=np.object_).reshape(-1, 1)


# ---------------------------------------------------------------- answers


def test_every_batch_size_answers_as_onnxruntime_does(
    server: Server, reference: Callable[[np.ndarray], np.ndarray]
) -> None:
    for size in range(1, 33):
        served = server.infer("mlp", {"x": noise(size)})["y"]
        np.testing.assert_allclose(served, reference(noise(size)), rtol=1e-5, atol=1e-5)


def test_eight_clients_with_different_batches_get_their_own_answers(
    server: Server, pool: ThreadPoolExecutor, reference: Callable[[np.ndarray], np.ndarray]
) -> None:
    sizes = np.random.default_rng(0).integers(1, 9, 160).tolist()
    before = server.counts("mlp")
    answers = list(pool.map(lambda size: server.infer("mlp", {"x": noise(size)})["y"], sizes))
    for size, served in zip(sizes, answers, strict=True):
        np.testing.assert_allclose(served, reference(noise(size)), rtol=1e-5, atol=1e-5)
    after = server.counts("mlp", before.rows + sum(sizes))
    assert after.runs - before.runs < len(sizes) / 2


def test_waiting_requests_are_joined_into_one_run(server: Server, pool: ThreadPoolExecutor) -> None:
    answers = pool.map(lambda n: server.infer("together", {"x": rows(n)})["y"], (1, 2, 3))
    assert [answer.tolist() for answer in answers] == [[[6.0] * 4] * n for n in (1, 2, 3)]


def test_two_instances_answer_alike(server: Server, pool: ThreadPoolExecutor) -> None:
    sent = [rows(1 + n % 3, n) for n in range(40)]
    for x, answer in zip(
        sent, pool.map(lambda x: server.infer("two", {"x": x}), sent), strict=True
    ):
        np.testing.assert_array_equal(answer["y"], x)


@pytest.mark.parametrize("sample", NAMED, ids=[sample.name for sample in NAMED])
def test_the_backend_may_be_given_as_platform_or_as_backend(server: Server, sample: Sample) -> None:
    np.testing.assert_array_equal(server.infer(sample.name, {"x": rows(2)})["y"], rows(2))


def test_parameters_accelerators_and_file_names_of_the_c_backend_load(server: Server) -> None:
    np.testing.assert_array_equal(server.infer("tuned", {"x": rows(2)})["y"], rows(2))


def test_accelerators_that_lack_are_logged_once_for_all_instances(server: Server) -> None:
    warning = "model 'tuned' runs on CPU, without: tensorrt, openvino"
    assert server.log.read_text().count(warning) == 1


def test_every_type_passes_and_outputs_are_sorted(server: Server) -> None:
    sent = {word: np.array([[0, 1]]).astype(numpy_type(word)) for word in TYPES}
    sent["STRING"] = np.array([[b"", b"text"]], dtype=np.object_)
    answer = server.infer("every_type", {f"in_{word}": array for word, array in sent.items()})
    assert list(answer) == sorted(f"out_{word}" for word in TYPES)
    for word, array in sent.items():
        assert answer[f"out_{word}"].dtype == array.dtype
        assert answer[f"out_{word}"].tolist() == array.tolist()


def numpy_type(word: str) -> Any:
    from tritonclient.utils import triton_to_np_dtype

    return triton_to_np_dtype(word)


def test_one_output_may_be_asked_for(server: Server) -> None:
    from tritonclient.grpc import InferRequestedOutput

    sent = {f"in_{word}": np.zeros((1, 2), numpy_type(word)) for word in TYPES if word != "STRING"}
    sent["in_STRING"] = np.array([[b"a", b"b"]], dtype=np.object_)
    wanted = [InferRequestedOutput("out_INT8")]
    assert list(server.infer("every_type", sent, outputs=wanted)) == ["out_INT8"]


def test_strings_are_text_cut_at_the_first_nul(server: Server) -> None:
    sent = strings("grüße 你好 🙂".encode(), b"", b"a\0b")
    assert server.infer("texts", {"x": sent})["y"].tolist() == [
        ["grüße 你好 🙂".encode()],
        [b""],
        [b"a"],
    ]


def test_bytes_that_are_not_utf8_are_refused(server: Server) -> None:
    status, text = server.refusal(lambda: server.infer("texts", {"x": strings(b"\xff")}))
    assert status == "StatusCode.INTERNAL"
    assert text == "input 'x' holds bytes that are not UTF-8; the embedded server takes UTF-8 only"


def test_a_scalar_input_is_reshaped_away(server: Server) -> None:
    sent = {"x": rows(2), "s": np.float32([[3], [3]])}
    np.testing.assert_array_equal(server.infer("scaled", sent)["y"], rows(2) * 3)


def test_a_scalar_output_with_an_empty_reshape_does_not_kill_the_server(server: Server) -> None:
    one = server.infer("total", {"x": rows(1), "s": np.float32([[2]])})
    assert one["total"].tolist() == [[12.0]]
    two = {"x": rows(2), "s": np.float32([[1], [1]])}
    status, text = server.refusal(lambda: server.infer("total", two))
    assert status == "StatusCode.UNIMPLEMENTED"
    assert text.endswith("expected batch size of at least 2 in model output, got 1")


def test_an_optional_input_has_its_default_again_in_the_next_request(server: Server) -> None:
    for given, factor in (({}, 2), ({"scale": np.float32([5])}, 5), ({}, 2)):
        answer = server.infer("optional", {"x": rows(2), **given})
        np.testing.assert_array_equal(answer["y"], rows(2) * factor)


def test_an_empty_batch_gives_an_empty_answer(server: Server) -> None:
    assert server.infer("empty", {"x": rows(0)})["y"].shape == (0, 4)


def test_sequence_controls_arrive(server: Server) -> None:
    seen = [
        server.infer(
            "controlled",
            {"x": rows(1)},
            sequence_id=7,
            sequence_start=step == 0,
            sequence_end=step == 2,
        )["seen"].item()
        for step in range(3)
    ]
    assert seen == [1, 0, 0]


# ---------------------------------------------------------------- bad requests


def test_a_bad_request_does_not_fail_its_neighbours(
    server: Server, pool: ThreadPoolExecutor
) -> None:
    before = server.counts("lookup")
    good = [pool.submit(server.infer, "lookup", {"x": np.int64([[n]])}) for n in (1, 2)]
    _, text = server.refusal(lambda: server.infer("lookup", {"x": np.int64([[7]])}))
    assert text.startswith("onnx runtime error 2: Non-zero status code returned while running")
    assert [answer.result()["y"].item() for answer in good] == [1.0, 2.0]
    after = server.counts("lookup", before.rows + 3)
    assert after.runs - before.runs == 1, "the three were not joined"


def test_a_request_whose_rows_the_model_drops_is_told_so(
    server: Server, pool: ThreadPoolExecutor
) -> None:
    calls = [pool.submit(server.infer, "short", {"x": rows(1, n)}) for n in range(3)]
    refused = [call.exception() for call in calls if call.exception()]
    assert sorted(str(error) for error in refused) == [
        "[StatusCode.UNIMPLEMENTED] [request id: <id_unknown>] failed to split the output tensor "
        f"'y' in responses: expected batch size of at least {rows} in model output, got 1"
        for rows in (2, 3)
    ]


def test_a_mismatching_request_is_told_tensor_and_shapes(server: Server) -> None:
    sent = {"ids": np.ones((1, 3), np.int64), "mask": np.ones((1, 2), np.int64)}
    _, text = server.refusal(lambda: server.infer("pair", sent))
    assert text.endswith("; input 'mask': expected shape [1,3], got [1,2]")
    _, text = server.refusal(lambda: server.infer("mlp", {"x": rows(1)}))
    assert "unexpected shape for input 'x' for model 'mlp'. Expected [-1,64], got [1,4]" in text


def test_requests_of_different_lengths_are_each_answered(
    server: Server, pool: ThreadPoolExecutor
) -> None:
    sent = [np.full((1, length), length) for length in (3, 5, 3, 4, 5, 3)]
    answers = pool.map(lambda ids: server.infer("pair", {"ids": ids, "mask": ids})["y"], sent)
    for ids, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(answer, ids * 2)


def test_surplus_rows_are_refused(server: Server) -> None:
    _, text = server.refusal(lambda: server.infer("doubled", {"x": rows(2)}))
    assert text.endswith("expected batch size of 2 in model output, got 4")


# ---------------------------------------------------------------- misfits


@pytest.fixture(scope="module")
def refusals(server: Server, pool: ThreadPoolExecutor) -> dict[str, tuple[str, str]]:
    """name of the case -> what Triton says when it is loaded, and what it should."""
    cases = {
        title: (replace(sample, name=f"bad_{number}"), text)
        for number, (title, (sample, text)) in enumerate(LOAD_ERRORS.items())
    }

    def load(title: str) -> tuple[str, str]:
        sample, text = cases[title]
        sample.write(server.repository)
        _, said = server.refusal(lambda: server.load(sample.name))
        version = server.repository / sample.name / "1"
        return said, text.replace("'M'", f"'{sample.name}'").replace("{version}", str(version))

    return dict(zip(cases, pool.map(load, cases), strict=True))


@pytest.mark.parametrize("case", LOAD_ERRORS)
def test_a_misfit_is_refused_in_the_words_of_the_c_backend(
    refusals: dict[str, tuple[str, str]], case: str
) -> None:
    said, text = refusals[case]
    assert f"version 1 is at UNAVAILABLE state: Internal: {text}\n\nAt:\n" in said
