"""Provenance: what became of each node, row by row, told with the answer.

Part of the runner of the bls form (model.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_calls import NodeError
    from mmctl.compiler.shipped.bls_plan import Node
    from mmctl.compiler.shipped.bls_values import objects
else:
    from bls_calls import NodeError
    from bls_plan import Node
    from bls_values import objects


class Story:
    """Collects entries while a request runs. Times are in ms since it began.

    An entry of a node has its outcome: `ran`, `cached`, `defaulted`, `skipped`, `failed`, or `late`
    when the answer left without it. `late: true` beside another outcome: a call was given up on.
    """

    def __init__(self, batch: int, began: float) -> None:
        self._batch, self._began = batch, began
        self._told: dict[str, tuple[Any, dict[str, Any]]] = {}

    def tell(
        self,
        node: Node,
        rows: Any,
        times: tuple[float, float],
        marks: dict[str, Any],
        found: list[int],
    ) -> None:
        """`rows` of a node ran (None: all), from and to `times` (time.monotonic); those `found`
        have an answer that was given to others.
        """
        outcomes = np.full(self._batch, "skipped", object)
        outcomes[slice(None) if rows is None else rows] = "ran"
        outcomes[found] = "cached"
        entry = {**self._times(*times), **marks}
        if node.version > 0:
            entry["version"] = node.version
        self._told[node.name] = (outcomes, entry)

    def lose(self, node: Node, rows: Any, error: NodeError) -> None:
        """`rows` of a node that was told of have failed."""
        outcomes, entry = self._told[node.name]
        outcomes[rows] = "defaulted" if node.has_default else "failed"
        entry["why"], entry["message"] = error.kind, str(error)

    def _times(self, begin: float, end: float) -> dict[str, Any]:
        start_ms = round((begin - self._began) * 1000, 3)
        return {"start_ms": start_ms, "ms": round((end - begin) * 1000, 3)}

    def told(self, nodes: list[Node]) -> Any:
        """[batch, 1] of JSON: node -> entry."""
        rows = [
            {name: self._entry(node, row) for node in nodes for name in node.covers}
            for row in range(self._batch)
        ]
        return objects([json.dumps(row, separators=(",", ":")).encode() for row in rows])

    def _entry(self, node: Node, row: int) -> dict[str, Any]:
        if node.name not in self._told:
            return {"outcome": "late"}
        outcomes, entry = self._told[node.name]
        outcome = outcomes[row]
        if outcome == "skipped":
            return {"outcome": outcome}
        without = ("why", "message") if outcome in ("ran", "cached") else ()
        return {"outcome": outcome, **{k: v for k, v in entry.items() if k not in without}}
