"""The text of a pipeline.yaml, as a person would write it: short mappings in one line. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mmctl.tensors import TensorType

WIDTH = 100
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
HEAD = """\
# Says what the ensemble in adopted.pbtxt said. `mmctl adopt` wrote it and proved that it compiles
# to an equal config.
"""


@dataclass(frozen=True, slots=True)
class NodeText:
    """A node that calls a model; `inputs` maps the model's names to references."""

    name: str
    model: str
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PipelineText:
    """What the file says. `max_batch` None leaves it to the models."""

    name: str
    inputs: Mapping[str, TensorType]
    nodes: tuple[NodeText, ...]
    outputs: Mapping[str, str]
    max_batch: int | None = None


def render_pipeline(pipeline: PipelineText) -> str:
    types = {name: str(kind) for name, kind in pipeline.inputs.items()}
    lines = [f"pipeline: {_scalar(pipeline.name)}"]
    lines += _mapping("inputs", types, 0)
    if pipeline.max_batch is not None:
        lines.append(f"max_batch: {pipeline.max_batch}")
    lines += ["nodes:", *_nodes(pipeline.nodes)]
    lines += _mapping("outputs", pipeline.outputs, 0)
    return HEAD + "\n".join(lines) + "\n"


def _nodes(nodes: tuple[NodeText, ...]) -> list[str]:
    """Nodes of one line stand in columns."""
    texts = [f"{{model: {_scalar(node.model)}, inputs: {_flow(node.inputs)}}}" for node in nodes]
    width = max(len(node.name) for node in nodes) + 1
    lines = []
    for node, text in zip(nodes, texts, strict=True):
        line = f"  {f'{node.name}:':{width}} {text}"
        if len(line) <= WIDTH:
            lines.append(line)
        else:
            lines += [f"  {node.name}:", f"    model: {_scalar(node.model)}"]
            lines += _mapping("inputs", node.inputs, 4)
    return lines


def _mapping(key: str, entries: Mapping[str, str], indent: int) -> list[str]:
    line = f"{' ' * indent}{key}: {_flow(entries)}"
    if len(line) <= WIDTH:
        return [line]
    inner = " " * (indent + 2)
    return [
        f"{' ' * indent}{key}:",
        *(f"{inner}{_scalar(name)}: {_scalar(value)}" for name, value in entries.items()),
    ]


def _flow(entries: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{_scalar(k)}: {_scalar(v)}' for k, v in entries.items())}}}"


def _scalar(text: str) -> str:
    """Quoted where YAML would read it as something else: a list, nothing, a number."""
    is_plain = _PLAIN.fullmatch(text) and text.lower() != "null"
    return text if is_plain else json.dumps(text, ensure_ascii=False)
