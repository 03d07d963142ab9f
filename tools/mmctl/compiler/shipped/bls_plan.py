"""plan.json, ready to run: nodes, what feeds them, and which of them an answer rests on.

Part of the runner of the bls form (model.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_calls import Slots
    from mmctl.compiler.shipped.bls_conditions import references
    from mmctl.compiler.shipped.bls_values import Tensor
else:
    from bls_calls import Slots
    from bls_conditions import references
    from bls_values import Tensor

SCHEMA = 1
PROVENANCE = "provenance"


class Input:
    """An input of a node's callee, and the tensor that feeds it.

    `each` takes one item of a list at a time. `soft`: of the quorum, so it may fail or be late.
    `rows` says only how many rows there are, to a node that may lack all other inputs.
    """

    __slots__ = ("each", "name", "node", "optional", "rows", "soft", "source", "tensor")

    def __init__(self, entry: Mapping[str, Any], quorum: Iterable[str]) -> None:
        self.name: str = entry["name"]
        self.node: str = entry["node"]
        self.tensor: str = entry["tensor"]
        self.optional: bool = entry.get("optional", False)
        self.each: bool = entry.get("each", False)
        self.rows: bool = entry.get("rows", False)
        self.soft = self.node in quorum
        self.source: Tensor

    def sent(self, value: Any) -> Any:
        """As the callee takes it: a step gets lists packed."""
        return self.source.packed(value) if self.source.items and not self.each else value


class Node:
    """A node of the plan, and what all requests of this instance share of it.

    `covers` are the nodes of the pipeline that it stands for; `branches` make it a switch, which
    calls nothing. `max_batch` 0: the callee has no batch axis.
    """

    def __init__(
        self, entry: Mapping[str, Any], pins: Mapping[str, int], digests: Mapping[str, str]
    ) -> None:
        self.name: str = entry["name"]
        self.model: str = entry.get("model", "")
        self.version: int = pins.get(self.model, -1)
        self.digest: str = digests.get(self.model, "")
        self.branches: list[str] = entry.get("branches", [])
        self.covers: list[str] = entry.get("covers", [self.name])
        self.max_batch: int = entry.get("max_batch", 0)
        self.timeout_s = seconds(entry.get("timeout_ms"))
        self.retries: int = entry.get("retries", 0)
        self.has_default: bool = entry.get("on_error", False)
        self.required: bool = entry.get("required", True)
        self.hedge_s = seconds(entry.get("hedge_ms"))
        self.cache_s: float | None = entry.get("cache_s")
        self.when: Any = entry.get("when")
        self.foreach: bool = entry.get("foreach", False)
        self.after: list[str] = entry.get("after", [])
        quorum = entry.get("quorum", {"need": 0, "of": []})
        self.quorum_need: int = quorum["need"]
        self.quorum: list[str] = quorum["of"]
        self.inputs = [Input(item, self.quorum) for item in entry["inputs"]]
        self.outputs = [Tensor(item) for item in entry["outputs"]]
        self.wanted = [tensor.name for tensor in self.outputs]
        self.slots = Slots(entry.get("max_in_flight", 1))
        self._derive()

    def _derive(self) -> None:
        looked_at = {node for node, _ in references(self.when)}
        fed = {item.node for item in self.inputs if not item.soft}
        self.optional = [item for item in self.inputs if item.optional]
        # In an order that stays, so that of several errors always the same one is told.
        self.hard = list(dict.fromkeys([*sorted(fed - {""}), *self.after, *self.branches]))
        """Nodes whose failure is this node's own, on the same rows."""
        self.sources = ({*self.hard, *self.quorum} | looked_at) - {""}
        """Nodes whose results this one looks at."""
        self.is_plain = self.when is None and not self.quorum
        self.absorbs = self.has_default or not self.required
        self.is_cached = self.cache_s is not None and self.digest != ""
        """What is not known by its content is asked each time."""
        packed = [tensor.items and not self.foreach for tensor in self.outputs]
        self.is_by_row = self.max_batch > 0 and all(
            is_one or min(tensor.dims, default=0) >= 0
            for tensor, is_one in zip(self.outputs, packed, strict=True)
        )
        """Whether other rows of a call cannot change the shape of a row's outputs."""
        how = f"{self.is_by_row} {self.foreach} {len(self.wanted)}"
        said = (self.model, str(self.version), self.digest, how, *self.wanted)
        self.identity = [text.encode() for text in said]
        """What an answer rests on beside the request."""

    @property
    def title(self) -> str:
        same = self.model in ("", self.name)
        return f"node `{self.name}`" if same else f"node `{self.name}` (model `{self.model}`)"


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


class Output:
    """An output of the pipeline and the tensor it shows."""

    __slots__ = ("name", "node", "tensor")

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.node: str = entry["node"]
        self.tensor: str = entry["tensor"]


class Plan:
    """The whole of plan.json. Raises ValueError for a schema that is not this runner's."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        if data["schema"] != SCHEMA:
            raise ValueError(f"plan.json has schema {data['schema']}, this runner reads {SCHEMA}")
        self.batched: bool = data["batched"]
        self.inputs = [Tensor(entry) for entry in data["inputs"]]
        self.rows = Tensor(data["rows"]) if "rows" in data else None
        """The tensor of inputs that have `rows`."""
        self.outputs = [Output(entry) for entry in data["outputs"]]
        digests = data.get("digests", {})
        self.nodes = {n["name"]: Node(n, data["pins"], digests) for n in data["nodes"]}
        self.deadline_s = seconds(data.get("deadline_ms"))
        self.max_pending: int | None = data.get("max_pending")
        self.cache_bytes: int = data.get("cache_bytes", 0)
        self.provenance: bool = data.get("provenance", False)
        self._routes: dict[frozenset[str], Route] = {}
        self._link()

    @property
    def calls_at_once(self) -> int:
        return sum(node.slots.count for node in self.nodes.values() if not node.branches)

    def _link(self) -> None:
        rows = [] if self.rows is None else [self.rows]
        tensors = {("", tensor.name): tensor for tensor in [*self.inputs, *rows]}
        for node in self.nodes.values():
            tensors |= {(node.name, tensor.name): tensor for tensor in node.outputs}
            for item in node.inputs:
                item.source = tensors[item.node, item.tensor]

    def route(self, wanted: Iterable[str]) -> Route:
        """The part of the graph that these outputs rest on."""
        key = frozenset(wanted)
        if key not in self._routes:
            self._routes[key] = Route(self, key)
        return self._routes[key]


class Route:
    """What one set of outputs needs: `first` are nodes that wait for nothing, `waits` says for how
    many others a node waits, `readers` who waits for it; `shown` are the nodes of the outputs. A
    failure of one of the nodes in `fatal` reaches an output whatever else happens.
    """

    def __init__(self, plan: Plan, wanted: frozenset[str]) -> None:
        self.provenance = plan.provenance and PROVENANCE in wanted
        self.outputs = [output for output in plan.outputs if output.name in wanted]
        rests_on = plan.outputs if self.provenance else self.outputs
        self.shown = frozenset(output.node for output in rests_on) - {""}
        names = set(self.shown)
        for node in reversed(plan.nodes.values()):
            names |= node.sources if node.name in names else set()
        self.nodes = [node for node in plan.nodes.values() if node.name in names]
        self.first = [node for node in self.nodes if not node.sources]
        self.waits = {node.name: len(node.sources) for node in self.nodes}
        self.readers = {
            name: [node for node in self.nodes if name in node.sources] for name in names
        }
        self.fatal = self._fatal()

    def _fatal(self) -> set[str]:
        """A reader with a condition may leave out the rows that have failed."""
        fatal: set[str] = set()
        for node in reversed(self.nodes):
            heirs = [n for n in self.readers[node.name] if node.name in n.hard and n.when is None]
            reaches = node.name in self.shown or any(heir.name in fatal for heir in heirs)
            if reaches and not node.absorbs:
                fatal.add(node.name)
        return fatal
