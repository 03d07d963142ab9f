"""An adopted pipeline answers what the ensemble answered, on a real Triton."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from repositories import write_python_model
from servers import Serve

from mmctl.cli.app import main
from mmctl.client import Client
from mmctl.client.transport import GrpcTransport
from mmctl.errors import InferenceError
from mmctl.files import write_text
from mmctl.inference import InferRequest
from mmctl.server.process import EmbeddedTriton

pytestmark = pytest.mark.live

CODE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(r, "in/0").as_numpy()) for r in requests]

    def answer(self, x):
        return pb.InferenceResponse([pb.Tensor("out", ANSWER.astype("float32"))])
"""
CONFIG = """
max_batch_size: 4
input [{name: "in/0", data_type: TYPE_FP32, dims: [3]}]
output [{name: "out", data_type: TYPE_FP32, dims: [3]}]
instance_group [{kind: KIND_CPU, count: 1}]
"""


def tensor(kind: str, name: str) -> str:
    return f'{kind} {{ name: "{name}", data_type: TYPE_FP32, dims: [3] }}'


INNER = f"""
platform: "ensemble"
max_batch_size: 3
{tensor("input", "x")}
{tensor("output", "mid")}
{tensor("output", "y")}
ensemble_scheduling {{
  step [{{
    model_name: "Square-It", model_version: -1
    input_map {{ key: "in/0" value: "mid" }}
    output_map {{ key: "out" value: "y" }}
  }}, {{
    model_name: "plus_one", model_version: -1
    input_map {{ key: "in/0" value: "x" }}
    output_map {{ key: "out" value: "mid" }}
  }}]
}}
"""
OUTER = f"""
platform: "ensemble"
max_batch_size: 2
{tensor("input", "a")}
{tensor("input", "b")}
{tensor("output", "p")}
{tensor("output", "q")}
{tensor("output", "r")}
ensemble_scheduling {{
  step {{ model_name: "inner" model_version: -1
    input_map {{ key: "x" value: "a" }}
    output_map {{ key: "y" value: "t" }} output_map {{ key: "mid" value: "r" }} }}
  step {{ model_name: "plus_one" model_version: -1
    input_map {{ key: "in/0" value: "t" }} output_map {{ key: "out" value: "p" }} }}
  step {{ model_name: "Square-It" model_version: -1
    input_map {{ key: "in/0" value: "b" }} output_map {{ key: "out" value: "q" }} }}
}}
"""
PART = f"""
platform: "ensemble"
max_batch_size: 2
{tensor("input", "x")}
{tensor("output", "y")}
ensemble_scheduling {{
  step {{ model_name: "inner" model_version: -1
    input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "y" }} }}
}}
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's repository: two Python models, an ensemble, and two that call it."""
    folder = tmp_path_factory.mktemp("somebody") / "models"
    write_python_model(folder, "plus_one", CONFIG, CODE.replace("ANSWER", "(x + 1)"))
    write_python_model(folder, "Square-It", CONFIG, CODE.replace("ANSWER", "(x * x)"))
    for name, config in {"inner": INNER, "outer": OUTER, "part": PART}.items():
        write_text(folder / name / "config.pbtxt", config)
        (folder / name / "1").mkdir()
    return folder


@pytest.fixture(scope="module")
def original(repository: Path, serve: Serve) -> EmbeddedTriton:
    return serve(repository)


@pytest.fixture(scope="module")
def clients(
    original: EmbeddedTriton,
    repository: Path,
    serve: Serve,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Client, Client]]:
    """Of the original, and of the workspace that adopted it."""
    space = tmp_path_factory.mktemp("space")
    (space / "mmctl.yaml").write_text("")
    assert main(["-C", str(space), "adopt", str(repository), "--yes"]) == 0
    with (
        Client(original.grpc) as before,
        Client(serve(space / "model_repository").grpc) as after,
    ):
        yield before, after


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    ("name", "inputs", "outputs"), [("inner", "x", "mid y"), ("outer", "a b", "p q r")]
)
def test_it_answers_what_the_ensemble_answered(
    clients: tuple[Client, Client], name: str, inputs: str, outputs: str, rows: int
) -> None:
    random = np.random.default_rng(rows)
    sent = {key: random.normal(size=(rows, 3)).astype("float32") for key in inputs.split()}
    before, after = (client.infer(name, sent).outputs for client in clients)
    assert sorted(before) == sorted(after) == outputs.split()
    for key in before:
        np.testing.assert_array_equal(before[key], after[key])


@pytest.mark.parametrize("name", ["inner", "outer"])
def test_clients_see_the_same_signature(clients: tuple[Client, Client], name: str) -> None:
    before, after = (client.signature(name) for client in clients)
    assert before == after


@pytest.mark.parametrize(
    ("name", "inputs", "output"),
    [("inner", "x", "y"), ("outer", "a b", "p"), ("outer", "a b", "q")],
)
def test_some_of_the_outputs_can_be_asked_for_which_the_original_could_not_answer(
    clients: tuple[Client, Client], name: str, inputs: str, output: str
) -> None:
    sent = {key: np.ones((1, 3), "float32") for key in inputs.split()}
    before, after = clients
    [found] = after.infer(name, sent, outputs=[output]).outputs.items()
    assert found[0] == output
    np.testing.assert_array_equal(found[1], before.infer(name, sent).outputs[output])


def test_an_ensemble_that_uses_one_output_of_another_answers_too(
    clients: tuple[Client, Client],
) -> None:
    """The original is never asked here: it fails, and its next request ends the server."""
    found = clients[1].infer("part", {"x": np.full((2, 3), 2, "float32")}).outputs["y"]
    np.testing.assert_array_equal(found, np.full((2, 3), 9, "float32"))


def test_the_repair_is_one(original: EmbeddedTriton) -> None:
    """Asked as Triton is: our client asks an ensemble for all of its outputs."""
    asked = InferRequest("inner", {"x": np.ones((1, 3), "float32")}, outputs=("y",))
    with (
        GrpcTransport(original.grpc) as transport,
        pytest.raises(InferenceError, match="deadlock"),
    ):
        transport.infer(asked, timeout_s=20)
