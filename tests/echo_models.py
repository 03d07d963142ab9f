"""Models that give back what they get, for tests of clients on a real Triton."""

from __future__ import annotations

from pathlib import Path

from mmctl.files import write_text
from mmctl.tensors import DType
from mmctl.triton.config import ConfigTensor, InstanceGroup, ModelConfig
from mmctl.triton.pbtxt import render_config

# Gives each input back as NAME_out, after what its text says.
ECHO = """
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request.inputs()) for request in requests]

    def answer(self, tensors):
        if any(b"boom" in tensor.as_numpy() for tensor in tensors):
            return pb.InferenceResponse(error=pb.TritonError("the text\\nsaid \\"boom\\""))
        if any(b"sleep" in tensor.as_numpy() for tensor in tensors):
            time.sleep(0.8)
        return pb.InferenceResponse([pb.Tensor(t.name() + "_out", t.as_numpy()) for t in tensors])
"""
NUMERIC = [d for d in DType if not d.is_text and d is not DType.BF16]


def write_echo(repository: Path, name: str, max_batch: int, **inputs: tuple[DType, int]) -> None:
    """Each input is a type and the length of its only axis beside the batch, -1 for any."""
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=max_batch,
        inputs=tuple(ConfigTensor(n, dtype, (dim,)) for n, (dtype, dim) in inputs.items()),
        outputs=tuple(
            ConfigTensor(f"{n}_out", dtype, (dim,)) for n, (dtype, dim) in inputs.items()
        ),
        instances=(InstanceGroup(1, "KIND_CPU"),),
    )
    write_text(repository / name / "1" / "model.py", ECHO)
    write_text(repository / name / "config.pbtxt", render_config(config))
