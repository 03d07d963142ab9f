"""The ensemble as it stands, what it calls, and what keeps it from being a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmctl.compiler.adopt.values import Location, field_name
from mmctl.diagnostics import Position
from mmctl.lint.text import ConfigText
from mmctl.tensors import Signature
from mmctl.triton.config import EnsembleStep, ModelConfig

STEP = ("ensemble_scheduling", "step")
LEAVE = "leave the ensemble as it is: in model_repository/ it is served, and pipelines can call it"
"""What can be done about everything, but for what makes it answer many times."""


@dataclass(frozen=True, slots=True)
class Callee:
    """A model that an ensemble calls. `signature` has no outputs where the config names none;
    `shown` is where the config stands, or should.
    """

    signature: Signature
    shown: str
    decoupled: bool = False
    exists: bool = True


@dataclass(frozen=True)
class Original:
    """An ensemble as it stands: the name of its folder, its config as text and as values."""

    name: str
    text: ConfigText
    config: ModelConfig

    @property
    def steps(self) -> Sequence[EnsembleStep]:
        return self.config.steps


@dataclass(frozen=True, slots=True)
class Difference:
    """Why an ensemble cannot be adopted: `field` of its config, and what is about it."""

    at: Position
    field: str
    message: str
    hint: str | None = None

    def text(self) -> str:
        text = f"{self.at}: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


def difference(
    original: Original, location: Location, message: str, hint: str | None = None
) -> Difference:
    """At `location` of the config, or at the nearest thing around it."""
    return Difference(original.text.at(*location), field_name(location), message, hint)
