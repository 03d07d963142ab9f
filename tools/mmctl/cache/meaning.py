"""What a lookup asks of a semantic level: one per model and embedder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from mmctl.cache.envelope import Entry, Vector
from mmctl.cache.keys import Identity
from mmctl.cache.settings import Semantic
from mmctl.effects import Steps
from mmctl.inference import InferRequest


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """`vector` is float32 [D] and of length 1. `embedder` is the digest of what made it, `turn` for
    the how manyeth time that is another one than before: what came to lie there while nobody had
    seen the change yet must not be found when an older one is back.
    """

    vector: Vector
    embedder: str
    turn: int = 0

    @property
    def space(self) -> str:
        """Only vectors of one space are compared: it is part of every partition."""
        return f"{self.embedder}.{self.turn}"


class Verdict(Protocol):
    """What the level says of a text."""

    @property
    def entry(self) -> Entry | None:
        """The answer to the nearest text; None when there is none near."""

    @property
    def similarity(self) -> float:
        """The cosine of the two texts."""

    @property
    def gate(self) -> float | None:
        """The probability that their answers are equal; None where no gate has learned."""

    @property
    def accepted(self) -> bool:
        """Whether `entry` may be given."""

    @property
    def probe(self) -> bool:
        """Accepted, and to be computed nevertheless: to learn how many are wrong."""


class Meaning(Protocol):
    """Texts that have answers, by partition. For any number of threads; touches nothing outside
    but what `embed` yields.
    """

    def pays(self, model_ms: float, cost_ms: float) -> bool:
        """Whether it saves more than it costs, where the model takes `model_ms` and embedding and
        search `cost_ms`. Asked once before each lookup.
        """

    def embed(self, text: str) -> Steps[Embedded]: ...

    def look(self, partition: bytes, text: str, vector: Vector) -> Verdict: ...

    def learn(self, verdict: Verdict, answer: Entry) -> bool | None:
        """The model has answered after all: whether its answer equals the verdict's; None where
        there was none to compare.
        """

    def store(self, partition: bytes, text: str, vector: Vector, entry: Entry) -> None: ...

    def gauges(self) -> Mapping[str, float]:
        """What statistics show of it, by the names of statistics.GAUGES."""


MakeMeaning = Callable[[Identity, Semantic], Meaning | None]
"""Of a deployed model and what is set for it; None where it has no semantic level."""


def one_text(request: InferRequest, name: str) -> str | None:
    """The text of an input that has exactly one, as UTF-8; only such requests can be compared."""
    array = request.inputs.get(name)
    if array is None or array.size != 1 or array.dtype.kind not in "OSU":
        return None
    item = array.reshape(-1).tolist()[0]
    if isinstance(item, bytes):
        try:
            return item.decode()
        except UnicodeDecodeError:
            return None
    return item if isinstance(item, str) else None
