"""The same graph as several models and as one: equal answers from a real Triton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from model_folders import write_model
from onnx_samples import onnx_model

from mmctl.client import Client
from mmctl.server.runtime import Runtime
from mmctl.serving.session import private_server
from mmctl.workspace import Workspace, read_workspace

pytestmark = [pytest.mark.live, pytest.mark.exports]

APART = """
pipeline: apart
form: ensemble
inputs: {x: "fp32[4]"}
nodes:
  wide: {model: widen, inputs: {x: x}}
  narrow: {model: narrow, inputs: {x: wide.y}}
  words: {step: spell, inputs: {y: narrow.y}, outputs: {text: string}}
  shout: {step: shout, inputs: {text: words.text}, outputs: {text: string}}
outputs: {y: narrow.y, text: shout.text}
"""
TOGETHER = APART.replace("apart", "together").replace("form: ensemble", "fuse: [wide, narrow]")
STEPS = """
def spell(y):
    return {"text": [" ".join(f"{v:g}" for v in row) for row in y]}

def shout(text):
    return {"text": [f"{row}!" for row in text]}
"""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("workspace")
    (root / "mmctl.yaml").write_text("")
    for name, factor in (("widen", 3), ("narrow", 0.5)):
        port = {"x": ("FLOAT", ["N", 4])}
        net = onnx_model(
            port, {"y": ("FLOAT", ["N", 4])}, [("Mul", ["x", "f"], ["y"], {})],
            {"f": np.float32([factor])},
        )  # fmt: skip
        yaml = "source: {onnx: net.onnx}\nbatching: {max_batch: 4}\n"
        write_model(root, name, yaml, net_onnx=net)
    for name, text in (("apart", APART), ("together", TOGETHER)):
        folder = Path(root, "ensembles", name)
        folder.mkdir(parents=True)
        (folder / "pipeline.yaml").write_text(text)
        (folder / "steps.py").write_text(STEPS)
    return read_workspace(root)


@pytest.fixture(scope="module")
def client(space: Workspace, runtime: Runtime) -> Iterator[Client]:
    with private_server(space, [], print) as server, Client(server.grpc) as client:
        yield client


def test_models_and_steps_that_became_one_answer_as_before(
    client: Client, space: Workspace
) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    apart, together = (client.infer(name, {"x": x}).outputs for name in ("apart", "together"))
    np.testing.assert_array_equal(apart["y"], together["y"])
    assert apart["text"].tolist() == together["text"].tolist()
    assert together["text"].ravel()[0] == "0 1.5 3 4.5!"
    made = [name for name in space.model_names() if name.startswith("together")]
    assert made == ["together", "together__narrow", "together__narrow__copy", "together__shout"]
