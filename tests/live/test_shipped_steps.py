"""The shipped runner and every ready-made step on the Python that the embedded server has."""

from __future__ import annotations

import ast
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - a picture to send
from pipelines import graph_of, source
from repositories import write_pipelines
from servers import Serve

from mmctl.client import Client
from mmctl.compiler import compile_pipeline
from mmctl.compiler.fuse import fuse_steps
from mmctl.compiler.shipped.item_lists import pack
from mmctl.compiler.steps import StepModel, step_model
from mmctl.errors import InferenceError
from mmctl.pipeline import Asset
from mmctl.pipeline.graph import FusedSteps, StepCall
from mmctl.pipeline.ready import READY
from mmctl.server.runtime import Runtime
from mmctl.triton.repository import GeneratedModel

pytestmark = pytest.mark.live

ASK = """
import ast, json, sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
import model

plan = json.loads((folder / "step.json").read_text())
steps = model.Steps(plan, model.load_functions(plan, folder))
dtypes = {t.name: object if t.items else t.dtype for t in steps.inputs}
requests = [
    {name: np.array(rows, dtypes[name]) for name, rows in request.items()}
    for request in ast.literal_eval(sys.stdin.read())
]
print([
    f"{outcome.step}: {outcome}" if isinstance(outcome, model.StepError)
    else {name: t.sent(outcome[name], batched=True).tolist() for name, _, t in steps.outputs}
    for outcome in steps.run(requests)
])
"""

TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
    "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"?": 0, "one": 4, "two": 5}, "unk_token": "?"},
}  # fmt: skip

PIPELINE = source(
    """
    pipeline: demo
    form: ensemble
    inputs: {text: string, image: bytes, scores: "fp32[2]", score: fp32}
    nodes:
      tokenize: {step: {use: tokenize, tokenizer: tokenizer.json}, inputs: {text: text}}
      image: {step: {use: image, size: 1}, inputs: {image: image}}
      labels: {step: {use: labels, labels: [nö, yes]}, inputs: {scores: scores}}
      threshold: {step: {use: threshold, at: 0.5}, inputs: {score: score}}
      join: {step: {use: join, separator: "-"}, inputs: {a: text, b: text}}
      own: {step: shout, inputs: {text: text}, outputs: {loud: string}}
    outputs: {ids: tokenize.input_ids, pixels: image.pixels, label: labels.label,
              passed: threshold.passed, joined: join.joined, loud: own.loud}
    """,
    steps="""
    def shout(text):
        if "boom" in list(text):
            raise ValueError("no booms")
        return {"loud": [f"{row}!" for row in text]}
    """,
    assets={"tokenizer.json": Asset("tokenizer.json", json.dumps(TOKENIZER).encode())},
)


def white() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (3, 3), 255).save(buffer, "PNG")
    return buffer.getvalue()


HELLO = "hellö".encode()

CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "tokenize": (
        [{"text": [[b"one two"]]}],
        [{"input_ids": [[4, 5] + [0] * 14], "attention_mask": [[1, 1] + [0] * 14]}],
    ),
    "image": (
        [{"image": [[white()]]}, {"image": [[b"junk"]]}],
        [{"pixels": [[[[255]]] * 3]},
         "image: `image`: not an image that Pillow can read (row 0 of the request)"],
    ),
    "labels": ([{"scores": [[0.25, 0.75]]}], [{"label": [[b"yes"]], "score": [[0.75]]}]),
    "threshold": ([{"score": [[0.5], [0.25]]}], [{"passed": [[True], [False]]}]),
    "join": ([{"a": [[b"x"]], "b": [[HELLO]]}], [{"joined": [[b"x-" + HELLO]]}]),
    "own": (
        [{"text": [[HELLO], [b""]]}, {"text": [[b"boom"]]}, {"text": [[b"\xff"]]}],
        [{"loud": [[HELLO + b"!"], [b"!"]]}, "own: ValueError: no booms (steps.py, line 4)",
         "own: `text` is not UTF-8: invalid start byte at byte 0"],
    ),
    "copy__inputs": (
        [{"text": [[b"a\x00"]], "image": [[b""]], "scores": [[1, 2]], "score": [[3]]}],
        [{"text__copy": [[b"a\x00"]], "image__copy": [[b""]], "scores__copy": [[1, 2]],
          "score__copy": [[3]]}],
    ),
}  # fmt: skip


LISTS_TEXT = """
    pipeline: demo
    inputs: {text: string}
    nodes:
      cut: {step: cut, inputs: {text: text}, outputs: {words: "string[*]", codes: "uint8[*,-1]"}}
      count: {step: count, inputs: {words: cut.words, codes: cut.codes}, outputs: {n: "int32[2]"}}
    outputs: {n: count.n}
    """
LISTS_STEPS = """
    import numpy as np

    def cut(text):
        words = [row.split() for row in text]
        codes = [[np.frombuffer(word.encode(), np.uint8) for word in row] for row in words]
        return {"words": words, "codes": codes}

    def count(words, codes):
        sizes = [sum(len(item) for item in row) for row in codes]
        return {"n": [[len(row), size] for row, size in zip(words, sizes)]}
    """
LISTS = source(LISTS_TEXT, steps=LISTS_STEPS)
APART = source(
    LISTS_TEXT.replace("pipeline: demo", "pipeline: apart\n    form: bls"),
    steps=LISTS_STEPS,
    name="apart",
)

TEXT = [[b"a " + HELLO], [b""]]
WORDS = [[pack(words, "string", [])] for words in ([b"a", HELLO], [])]
CODES = [
    [pack([np.frombuffer(word, np.uint8) for word in words], "uint8", [-1])]
    for words in ([b"a", HELLO], [])
]
COUNTED = [[2, 1 + len(HELLO)], [0, 0]]

LIST_CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "cut": ([{"text": TEXT}], [{"words": WORDS, "codes": CODES}]),
    "count": (
        [{"words": WORDS, "codes": CODES}, {"words": [[b"junk"]], "codes": CODES[:1]}],
        [
            {"n": COUNTED},
            "count: `words`: a list of 4 bytes is cut short: its header has 8 or more",
        ],
    ),
    "cut+count": (
        [{"text": TEXT}, {"text": [[b"\xff"]]}],
        [{"n": COUNTED}, "cut: `text` is not UTF-8: invalid start byte at byte 0"],
    ),
}


def test_every_ready_made_step_has_a_case() -> None:
    assert set(READY) <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_step_answers_on_the_python_of_the_server(
    runtime: Runtime, tmp_path: Path, name: str
) -> None:
    models = compile_pipeline(graph_of(PIPELINE), PIPELINE).models
    [model] = (model for model in models if model.name == f"demo__{name}")
    check(runtime, tmp_path, model, *CASES[name])


@pytest.mark.parametrize("name", LIST_CASES)
def test_lists_are_the_same_in_one_model_and_in_two(
    runtime: Runtime, tmp_path: Path, name: str
) -> None:
    graph = graph_of(LISTS)
    [fused] = fuse_steps(graph).nodes
    [node] = [node for node in (*graph.nodes, fused) if "+".join(node.covers) == name]
    assert isinstance(node.runs, StepCall | FusedSteps)
    step = StepModel("demo", node.name, node.runs, node.takes, node.gives)
    model = step_model(step, pipeline_max_batch=8, origin="pipeline.yaml")
    check(runtime, tmp_path, model, *LIST_CASES[name])


def test_a_server_answers_the_same_from_one_model_and_from_two(
    serve: Serve, tmp_path: Path
) -> None:
    write_pipelines(tmp_path, [LISTS, APART], {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "apart", "apart__count", "apart__cut", "demo",
    ]  # fmt: skip
    with Client(serve(tmp_path).grpc) as client:
        for name in ("demo", "apart"):
            asked = {"text": np.array([[row[0].decode()] for row in TEXT], object)}
            assert client.infer(name, asked).outputs["n"].tolist() == COUNTED
            with pytest.raises(InferenceError, match="step `cut`: `text` is not UTF-8"):
                client.infer(name, {"text": np.array([[b"\xff"]], object)})


def check(
    runtime: Runtime,
    folder: Path,
    model: GeneratedModel,
    requests: list[Any],
    expected: list[Any],
) -> None:
    for path, content in model.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    done = subprocess.run(
        [runtime.python, "-I", "-W", "error", "-c", ASK, folder],
        input=repr(requests), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == expected
