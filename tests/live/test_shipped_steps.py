"""The shipped runner and every ready-made step on the Python that the embedded server has."""

from __future__ import annotations

import ast
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image  # noqa: TID253 - a picture to send
from pipelines import graph_of, source

from mmctl.compiler import compile_pipeline
from mmctl.pipeline import Asset
from mmctl.pipeline.ready import READY
from mmctl.server.runtime import Runtime

pytestmark = pytest.mark.live

ASK = """
import ast, json, sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
import model

plan = json.loads((folder / "step.json").read_text())
step = model.Step(plan, model.load_function(plan, folder))
dtypes = {tensor.name: tensor.dtype for tensor in step.inputs}
requests = [
    {name: np.array(rows, dtypes[name]) for name, rows in request.items()}
    for request in ast.literal_eval(sys.stdin.read())
]
print([
    str(o) if isinstance(o, model.StepError) else {k: v.tolist() for k, v in o.items()}
    for o in step.run(requests)
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
         "`image`: not an image that Pillow can read (row 0 of the request)"],
    ),
    "labels": ([{"scores": [[0.25, 0.75]]}], [{"label": [b"yes"], "score": [0.75]}]),
    "threshold": ([{"score": [[0.5], [0.25]]}], [{"passed": [True, False]}]),
    "join": ([{"a": [[b"x"]], "b": [[HELLO]]}], [{"joined": [b"x-" + HELLO]}]),
    "own": (
        [{"text": [[HELLO], [b""]]}, {"text": [[b"boom"]]}, {"text": [[b"\xff"]]}],
        [{"loud": [HELLO + b"!", b"!"]}, "ValueError: no booms (steps.py, line 4)",
         "`text` is not UTF-8: invalid start byte at byte 0"],
    ),
    "copy__inputs": (
        [{"text": [[b"a\x00"]], "image": [[b""]], "scores": [[1, 2]], "score": [[3]]}],
        [{"text__copy": [b"a\x00"], "image__copy": [b""], "scores__copy": [[1, 2]],
          "score__copy": [3]}],
    ),
}  # fmt: skip


def test_every_ready_made_step_has_a_case() -> None:
    assert set(READY) <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_step_answers_on_the_python_of_the_server(
    runtime: Runtime, tmp_path: Path, name: str
) -> None:
    models = compile_pipeline(graph_of(PIPELINE), PIPELINE).models
    [model] = (model for model in models if model.name == f"demo__{name}")
    for path, content in model.files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    requests, expected = CASES[name]
    done = subprocess.run(
        [runtime.python, "-I", "-W", "error", "-c", ASK, tmp_path],
        input=repr(requests), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == expected
