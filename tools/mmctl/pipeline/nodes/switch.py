"""`{switch: ..., ...}`: rows take one of several ways. Only the bls form can do that."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.scope import Callee, Scope


class SwitchNode(NodeEntry):
    """Read as far as it takes to say that it needs another form."""

    model_config = ConfigDict(extra="allow")

    switch: Any


def resolve_switch(name: str, _node: SwitchNode, scope: Scope) -> Callee | None:
    scope.report.needs_bls(f"`{name}.switch`", "nodes", name, "switch")
    return None
