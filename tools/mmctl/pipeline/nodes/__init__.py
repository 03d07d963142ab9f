"""Node kinds of pipeline.yaml: the key that names a kind -> what such a node says and runs.

To add one: a module here with an entry and a resolver, and a row in KINDS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.nodes.model import ModelNode, resolve_model
from mmctl.pipeline.nodes.step import StepNode, resolve_step
from mmctl.pipeline.nodes.switch import SwitchNode, resolve_switch
from mmctl.pipeline.scope import Callee, Scope


@dataclass(frozen=True, slots=True)
class Kind:
    """`resolve(name, entry, scope)` types a node; it returns None when a finding says why not."""

    entry: type[NodeEntry]
    resolve: Callable[[str, Any, Scope], Callee | None]


KINDS: dict[str, Kind] = {
    "model": Kind(ModelNode, resolve_model),
    "step": Kind(StepNode, resolve_step),
    "switch": Kind(SwitchNode, resolve_switch),
}
