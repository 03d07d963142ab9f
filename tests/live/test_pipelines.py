"""Compiled pipelines on a real Triton: all outputs and any of them, whole batches and single rows,
good requests beside bad ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - pictures to send
from pipelines import signature, source
from repositories import write_pipelines, write_python_model
from servers import Serve, executions

from mmctl.client import Client
from mmctl.errors import InferenceError
from mmctl.server.process import EmbeddedTriton

pytestmark = [pytest.mark.live, pytest.mark.alone]

DOUBLE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(r, "x").as_numpy()) for r in requests]

    def answer(self, x):
        return pb.InferenceResponse([pb.Tensor("y/0", 2 * x)])
"""

DOUBLE_CONFIG = """
max_batch_size: 8
input [{name: "x", data_type: TYPE_FP32, dims: [1]}]
output [{name: "y/0", data_type: TYPE_FP32, dims: [1]}]
instance_group [{kind: KIND_CPU, count: 1}]
dynamic_batching {}
"""

FAN = source(
    """
    pipeline: fan
    inputs: {x: fp32, text: string}
    nodes:
      one: {model: double, inputs: {x: x}}
      two: {model: double, inputs: {x: one.y/0}}
      words: {step: count, inputs: {text: text}, outputs: {n: int32, upper: string}}
      more: {step: add, inputs: {n: words.n}, outputs: {n: int32}}
    outputs: {y: one.y/0, same: one.y/0, four: two.y/0, n: words.n, upper: words.upper, m: more.n}
    """,
    name="fan",
    steps="""
    import numpy as np

    def count(text):
        if "boom" in list(text):
            raise ValueError("no booms")
        return {"n": [len(row.split()) for row in text], "upper": [row.upper() for row in text]}

    def add(n):
        return {"n": n + 1}
    """,
)

OUTER = source(
    """
    pipeline: outer
    inputs: {x: fp32, text: string}
    nodes:
      inner: {model: fan, inputs: {x: x, text: text}}
      tell: {step: tell, inputs: {n: inner.n, text: text}, outputs: {told: string}, batch: false}
    outputs: {told: tell.told, y: inner.y}
    """,
    name="outer",
    steps="""
    def tell(n, text):
        return {"told": f"{text}: {n}"}
    """,
)

PHOTOS = source(
    """
    pipeline: photos
    inputs: {image: bytes}
    nodes:
      pixels: {step: {use: image, size: 32}, inputs: {image: image}, batching: {max_delay_ms: 300}}
      mean: {step: mean, inputs: {pixels: pixels.pixels}, outputs: {mean: fp32}}
    outputs: {mean: mean.mean}
    """,
    name="photos",
    steps="""
    def mean(pixels):
        return {"mean": pixels.mean(axis=(1, 2, 3))}
    """,
)

WRONG = source(
    """
    pipeline: wrong
    inputs: {how: string}
    nodes:
      a: {step: answer, inputs: {how: how}, outputs: {x: fp32}}
    outputs: {x: a.x}
    """,
    name="wrong",
    steps="""
    import numpy as np

    ANSWERS = {"nothing": {}, "text": {"x": ["a"]}, "rows": {"x": np.ones((1, 2), np.float32)}}

    def answer(how):
        returned = ANSWERS[how[0]]
        return returned
    """,
)


@pytest.fixture(scope="module")
def triton(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> EmbeddedTriton:
    """One server with the pipelines of this module."""
    repository = tmp_path_factory.mktemp("repository")
    write_python_model(repository, "double", DOUBLE_CONFIG, DOUBLE)
    models = {"double": signature({"x": "fp32"}, {"y/0": "fp32"})}
    write_pipelines(repository, [FAN, OUTER, PHOTOS, WRONG], models)
    return serve(repository)


@pytest.fixture(scope="module")
def client(triton: EmbeddedTriton) -> Iterator[Client]:
    with Client(triton.grpc) as client:
        yield client


def lists(outputs: Any) -> dict[str, Any]:
    """Outputs as plain values, one list a tensor."""
    return {name: np.asarray(array).ravel().tolist() for name, array in outputs.items()}


REQUEST = {"x": [[1], [2.5]], "text": [["hello wörld"], ["one"]]}
ANSWER = {
    "y": [2, 5], "same": [2, 5], "four": [4, 10],
    "n": [2, 1], "upper": ["HELLO WÖRLD", "ONE"], "m": [3, 2],
}  # fmt: skip


def test_models_steps_and_copies_answer_together(client: Client) -> None:
    assert lists(client.infer("fan", REQUEST).outputs) == ANSWER


def test_any_of_the_outputs_can_be_asked_for(client: Client) -> None:
    for size in range(1, len(ANSWER)):
        for wanted in combinations(ANSWER, size):
            answer = client.infer("fan", REQUEST, outputs=wanted, timeout_s=5)
            assert lists(answer.outputs) == {name: ANSWER[name] for name in wanted}


def test_a_pipeline_calls_another_and_uses_some_of_its_outputs(client: Client) -> None:
    wanted = {"told": ["hello wörld: 2", "one: 1"], "y": [2, 5]}
    assert lists(client.infer("outer", REQUEST).outputs) == wanted
    for name, value in wanted.items():
        answer = client.infer("outer", REQUEST, outputs=[name], timeout_s=5)
        assert lists(answer.outputs) == {name: value}


@pytest.mark.parametrize("pipeline", ["fan", "outer"])
def test_the_batch_law(client: Client, pipeline: str) -> None:
    rows = 6
    request = {
        "x": np.arange(rows, dtype=np.float32)[:, None],
        "text": np.array([[f"{'word ' * i}end"] for i in range(rows)], object),
    }
    whole = lists(client.infer(pipeline, request).outputs)
    for at in range(1, rows):
        parts = [{k: v[:at] for k, v in request.items()}, {k: v[at:] for k, v in request.items()}]
        first, second = (lists(client.infer(pipeline, part).outputs) for part in parts)
        assert {name: first[name] + second[name] for name in first} == whole


def test_a_step_that_raises_is_named_with_the_line(client: Client) -> None:
    with pytest.raises(InferenceError) as error:
        client.infer("fan", {"x": [[1]], "text": [["boom"]]})
    assert "step `words`: ValueError: no booms (steps.py, line 6)" in str(error.value)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("nothing", "step `a`: output `x` is missing: the step returned nothing"),
        ("text", "step `a`: output `x` is <U1, declared fp32"),
        ("rows", "step `a`: output `x` has shape [1, 2], expected [1] (fp32 for a batch of 1)"),
    ],
)
def test_a_wrong_answer_of_a_step_is_named(client: Client, how: str, problem: str) -> None:
    with pytest.raises(InferenceError) as error:
        client.infer("wrong", {"how": [[how]]})
    assert problem in str(error.value)


def picture(level: int, side: int = 60) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (side, side), level).save(buffer, "PNG")
    return buffer.getvalue()


def test_one_bad_picture_among_good_ones_fails_alone(
    client: Client, triton: EmbeddedTriton
) -> None:
    """Eight requests that are served together: two are no picture, or too much of one."""
    photos = [picture(10 * level) for level in range(1, 9)]
    photos[2] = b"not a picture"
    photos[5] = picture(0, side=10_000)

    def ask(photo: bytes) -> float | str:
        try:
            answer = client.infer("photos", {"image": [[photo]]})
            return float(np.ravel(answer.outputs["mean"])[0])
        except InferenceError as error:
            return str(error)

    with ThreadPoolExecutor(len(photos)) as pool:
        answers = list(pool.map(ask, photos))
    rows, calls = executions(triton, "photos__pixels")
    assert calls < rows
    problems = {2: "not an image that Pillow can read", 5: "100 megapixels, allowed are 50"}
    for index, answer in enumerate(answers):
        if index in problems:
            assert f"step `pixels`: `image`: {problems[index]}" in str(answer)
        else:
            assert answer == 10 * (index + 1)
