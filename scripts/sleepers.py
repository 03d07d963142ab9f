"""A workspace whose models sleep: what their batches cost is known, and no processor is needed."""

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
        return [pb.InferenceResponse([pb.Tensor("y", tensor)]) for tensor in tensors]
"""
SAMPLE_INPUTS = {"x": 1.0}
SAMPLE = '{"inputs": {"x": 1.0}, "expect": {"y": 1.0}}\n'


Nodes = Mapping[str, tuple[str, Sequence[str], str]]
"""In order: what a node calls, whose `y` it reads ("x" is the input; two at most), and more keys
of it, with a comma before. The last one answers."""


def write_sleepers(
    root: Path,
    costs: Mapping[str, tuple[float, float]],
    pipelines: Mapping[str, Nodes],
    settings: Mapping[str, str] = {},
) -> None:
    """`costs` in seconds, fixed and per row, by model; `settings` are lines of its model.yaml.

    A model that joins two branches somewhere has a second input, `z`, which it only waits for.
    """
    joins = {
        model for nodes in pipelines.values() for model, reads, _ in nodes.values() if reads[1:]
    }
    write_text(root / "mmctl.yaml", "targets: {}\n")
    for name, (fixed, per_row) in costs.items():
        folder = root / "model_repository" / name
        inputs = "{x: fp32, z: fp32}" if name in joins else "{x: fp32}"
        write_text(folder / "model.py", MODEL.format(fixed=fixed, per_row=per_row))
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
