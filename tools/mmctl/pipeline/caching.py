"""`cache:` of nodes: whether an answer that was given once may be given again."""

from __future__ import annotations

from collections.abc import Mapping

from mmctl.pipeline.findings import IDLE_POLICY, POLICY, Report
from mmctl.pipeline.graph import Graph, ModelCall
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.nodes.switch import SwitchNode
from mmctl.pipeline.scope import Scope
from mmctl.pipeline.spec import Spec

UNKNOWN_CONTENT = "is a model of your own, and mmctl does not know when its content changes"


def check_cache(name: str, node: NodeEntry, scope: Scope) -> None:
    """An answer is found by the inputs of the node and the content of what it calls: both must be
    there, and the answer must always be the model's own.
    """
    if node.cache is None or isinstance(node, SwitchNode):
        return
    place = ("nodes", name, "cache")
    if not node.inputs:
        message = f"`{name}.cache`: `{name}` reads nothing, by which its answers could be found"
        scope.report.add_key(POLICY, message, *place, hint="remove `cache`")
    callee = scope.callee(name)
    match callee.runs if callee else None:
        case ModelCall(model=model) if model in scope.doubts:
            message = f"`{name}.cache`: `{model}` {scope.doubts[model]}"
            hint = "remove it here, and write `cache` at nodes that can have it"
            scope.report.add_key(POLICY, message, *place, hint=hint)


def check_cache_bytes(spec: Spec, report: Report) -> None:
    if spec.file.cache_bytes is not None and all(n.cache is None for n in spec.nodes.values()):
        message = "`cache_bytes` bounds nothing: no node has `cache`"
        report.add_key(IDLE_POLICY, message, "cache_bytes", hint="remove it")


def doubt_of(graph: Graph, doubts: Mapping[str, str]) -> str | None:
    """Why the answers of a pipeline cannot be kept, None when they can: one that rests on a
    fallback is not what the next request would get, and only the pipeline itself can tell.
    """
    for node in graph.nodes:
        if node.policy.absorbs:
            return f"answers without `{node.name}` where that fails, and such answers are not kept"
        if isinstance(node.runs, ModelCall) and node.runs.model in doubts:
            return f"calls `{node.runs.model}`, which {doubts[node.runs.model]}"
    return None
