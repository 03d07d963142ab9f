"""Which of the models that a pipeline calls waits for which: from what Triton or mmctl runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mmctl.triton.config import EnsembleStep

Waits = dict[str, frozenset[str]]
"""By model: the models whose answers it waits for."""


def waits_of_ensemble(steps: Iterable[EnsembleStep]) -> Waits:
    """Tensors join steps: one waits for those that make what it reads."""
    listed = list(steps)
    makers = {tensor: step.model for step in listed for tensor in step.outputs.values()}
    waits: dict[str, set[str]] = {step.model: set() for step in listed}
    for step in listed:
        waits[step.model] |= {makers[t] for t in step.inputs.values() if t in makers}
    return {model: frozenset(found) for model, found in waits.items()}


def waits_of_plan(plan: Mapping[str, Any]) -> Waits:
    """Of plan.json, which a pipeline in the bls form runs. A switch calls nothing: who waits for
    it waits for its branches.
    """
    nodes = {node["name"]: node for node in plan["nodes"]}

    def models(name: str) -> Iterator[str]:
        node = nodes[name]
        if model := node.get("model"):
            yield model
        else:
            for branch in node.get("branches", ()):
                yield from models(branch)

    waits: dict[str, set[str]] = {}
    for node in nodes.values():
        if model := node.get("model"):
            found = waits.setdefault(model, set())
            for source in _sources(node):
                found.update(models(source))
    return {model: frozenset(found - {model}) for model, found in waits.items()}


def _sources(node: Mapping[str, Any]) -> set[str]:
    named = {item["node"] for item in node["inputs"]}
    named.update(node.get("after", ()), node.get("branches", ()))
    named.update(node.get("quorum", {}).get("of", ()), _referred(node.get("when")))
    return named - {""}


def _referred(tree: Any) -> Iterator[str]:
    """The nodes that a condition looks at: it has ["ref", node, tensor, [subscript, ...]]."""
    if not isinstance(tree, list):
        return
    if tree[:1] == ["ref"]:
        yield str(tree[1])
        return
    for part in tree:
        yield from _referred(part)
