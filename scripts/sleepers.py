"""Models that sleep: what their batches cost is known, and no processor is needed."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from mmctl.files import write_text

MODEL = """import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        time.sleep({fixed} + {per_row} * sum(len(tensor) for tensor in tensors))
        return [pb.InferenceResponse([pb.Tensor("y", tensor + {adds})]) for tensor in tensors]
"""
CONFIG = """name: "{name}" backend: "python" max_batch_size: {max_batch}
input [{inputs}]
output [{{name: "y" data_type: TYPE_FP32 dims: [1]}}]
instance_group [{{kind: KIND_CPU count: {instances}}}]
{more}"""
SAMPLE_INPUTS = {"x": 1.0}
SAMPLE = '{"inputs": {"x": 1.0}, "expect": {"y": 1.0}}\n'


Nodes = Mapping[str, tuple[str, Sequence[str], str]]
"""In order: what a node calls, whose `y` it reads ("x" is the input; two at most), and more keys
of it, with a comma before. The last one answers."""


def write_sleeper(
    repository: Path,
    name: str,
    fixed: float,
    per_row: float = 0.0,
    *,
    inputs: str = "x",
    max_batch: int = 8,
    instances: int = 1,
    more: str = "",
    adds: int = 0,
) -> None:
    """A folder as Triton serves it: `y` is `x`, and `adds`. `inputs` have one letter each; it waits
    for all of them. `more` is further text of its config.
    """
    tensors = ", ".join(f'{{name: "{key}" data_type: TYPE_FP32 dims: [1]}}' for key in inputs)
    config = CONFIG.format(
        name=name, max_batch=max_batch, inputs=tensors, instances=instances, more=more
    )
    write_text(repository / name / "config.pbtxt", config)
    write_text(repository / name / "1" / "model.py", code_of(fixed, per_row, adds))


def code_of(fixed: float, per_row: float = 0.0, adds: int = 0) -> str:
    """Its model.py."""
    return MODEL.format(fixed=fixed, per_row=per_row, adds=adds)


def write_sleepers(
    root: Path,
    costs: Mapping[str, tuple[float, float]],
    pipelines: Mapping[str, Nodes],
    settings: Mapping[str, str] = {},
) -> None:
    """A workspace of them. `costs` in seconds, fixed and per row, by model; `settings` are lines of
    its model.yaml.

    A model that joins two branches somewhere has a second input, `z`, which it only waits for.
    """
    joins = {
        model for nodes in pipelines.values() for model, reads, _ in nodes.values() if reads[1:]
    }
    write_text(root / "mmctl.yaml", "targets: {}\n")
    for name, (fixed, per_row) in costs.items():
        folder = root / "model_repository" / name
        inputs = "{x: fp32, z: fp32}" if name in joins else "{x: fp32}"
        write_text(folder / "model.py", code_of(fixed, per_row))
        write_text(
            folder / "model.yaml",
            f"source: {{python: model.py}}\ninputs: {inputs}\noutputs: {{y: fp32}}\n"
            + settings.get(name, ""),
        )
    for name, nodes in pipelines.items():
        _write_pipeline(root, name, nodes, joins)
    for name in (*costs, *pipelines):
        write_text(root / "ensembles" / name / "samples" / "one.json", SAMPLE)


def _write_pipeline(root: Path, name: str, nodes: Nodes, joins: Container[str]) -> None:
    lines = [f"pipeline: {name}", "inputs: {x: fp32}", "nodes:"]
    last = ""
    for node, (model, reads, more) in nodes.items():
        wires = ["x" if source == "x" else f"{source}.y" for source in reads]
        inputs = f"x: {wires[0]}" + (f", z: {wires[-1]}" if model in joins else "")
        lines.append(f"  {node}: {{model: {model}, inputs: {{{inputs}}}{more}}}")
        last = node
    lines.append(f"outputs: {{y: {last}.y}}")
    write_text(root / "ensembles" / name / "pipeline.yaml", "\n".join(lines) + "\n")
