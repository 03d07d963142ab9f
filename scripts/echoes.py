"""A model that gives back what it is asked: what is left is the cost of asking."""

from __future__ import annotations

from pathlib import Path

from mmctl.files import write_text
from mmctl.tensors import DType
from mmctl.triton.config import ConfigTensor, DynamicBatching, InstanceGroup, ModelConfig
from mmctl.triton.pbtxt import render_config

CODE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb.get_input_tensor_by_name(request, "x") for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", t.as_numpy())]) for t in tensors]
"""


def write_echo(
    tree: Path,
    name: str,
    dtype: DType,
    dim: int,
    max_batch: int,
    batching: DynamicBatching | None = None,
) -> None:
    """`y` of each row is its `x`: `dim` values."""
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=max_batch,
        inputs=(ConfigTensor("x", dtype, (dim,)),),
        outputs=(ConfigTensor("y", dtype, (dim,)),),
        instances=(InstanceGroup(1, "KIND_CPU"),),
        batching=batching,
    )
    write_text(tree / name / "1" / "model.py", CODE)
    write_text(tree / name / "config.pbtxt", render_config(config))
