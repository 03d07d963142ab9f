"""Model repositories that mmctl never wrote, for the run check: configs and Python as text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

CODE = """\
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    calls = 0

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = self.input(request, "x")
{body}

    def input(self, request, name):
        tensor = pb.get_input_tensor_by_name(request, name)
        return None if tensor is None else tensor.as_numpy()

    def give(self, **outputs):
        return pb.InferenceResponse([pb.Tensor(name, array) for name, array in outputs.items()])
"""


def warm_up(data: str) -> str:
    """A warm-up of one row; `data` is what it is filled with."""
    value = f"data_type: TYPE_FP32 dims: [4] {data}"
    return f'model_warmup [{{name: "w" batch_size: 1 inputs {{key: "x" value {{{value}}}}}}}]'


ZEROS = warm_up("zero_data: true")


class Models:
    """A repository that grows model by model."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def python(self, name: str, body: str = "return self.give(y=x)", config: str = "") -> Path:
        """`body` is that of a method with the input `x`; `config` what differs from `fp32[4]` to
        `fp32[4]` in batches of up to 4.
        """
        return self.code(name, CODE.format(body=indent(body, " " * 8)), config)

    def code(self, name: str, code: str, config: str = "") -> Path:
        folder = self.write(name, 'backend: "python"\n' + (config or io()))
        (folder / "1" / "model.py").write_text(code)
        return folder

    def onnx(self, name: str, content: bytes, config: str) -> Path:
        folder = self.write(name, f'backend: "onnxruntime"\n{config}')
        (folder / "1" / "model.onnx").write_bytes(content)
        return folder

    def ensemble(self, name: str, config: str, *steps: str) -> Path:
        """Steps are written `model: x=a -> y=b`, the model's own names first."""
        told = "".join(step(text) for text in steps)
        return self.write(name, f'platform: "ensemble"\n{config}ensemble_scheduling {{\n{told}}}\n')

    def write(self, name: str, config: str) -> Path:
        folder = self.root / name
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(config)
        return folder


def io(
    inputs: str = "x FP32 4", outputs: str = "y FP32 4", max_batch: int = 4, more: str = ""
) -> str:
    """Tensors are written `name type dims`, several with commas; `name?` is optional."""
    lines = [f"max_batch_size: {max_batch}"]
    lines += [f"input [{{{tensor(text)}}}]" for text in inputs.split(", ")]
    lines += [f"output [{{{tensor(text)}}}]" for text in outputs.split(", ")]
    return "\n".join([*lines, more]) + "\n"


def tensor(text: str) -> str:
    name, kind, *dims = text.split()
    told = f'name: "{name.rstrip("?")}" data_type: TYPE_{kind} dims: [{",".join(dims)}]'
    return told + (" optional: true" if name.endswith("?") else "")


def step(text: str) -> str:
    model, _, maps = text.partition(": ")
    sources, _, sinks = maps.partition(" -> ")
    told = "".join(
        f' {field} {{key: "{key}" value: "{value}"}}'
        for field, pairs in (("input_map", sources), ("output_map", sinks))
        for key, _, value in (pair.partition("=") for pair in pairs.split())
    )
    return f'  step {{model_name: "{model}" model_version: -1{told}}}\n'


def files_of(root: Path) -> Mapping[str, bytes]:
    """Everything in a repository, to see that nothing was changed."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
