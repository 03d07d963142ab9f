"""What a rule about repositories is: a function that finds mistakes, and the row that explains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mmctl.diagnostics import Finding, Position, Rule, Severity
from mmctl.lint.repository import Model, Repository


@dataclass(frozen=True, slots=True)
class Mistake:
    """One place where a rule is broken; `severity` where it differs from the row's."""

    at: Position
    message: str
    hint: str | None = None
    severity: Severity | None = None


Find = Callable[[Model, Repository], Iterator[Mistake]]
"""Looks at one model. The repository gives the models around it and the target."""


@dataclass(frozen=True, slots=True)
class Check:
    """A row of the table: the rule, and the function that finds where it is broken.

    The function sees only models whose config.pbtxt could be read.
    """

    rule: Rule
    find: Find

    def findings(self, model: Model, repository: Repository) -> Iterator[Finding]:
        for mistake in self.find(model, repository):
            yield Finding.at(
                mistake.at,
                self.rule.code,
                mistake.message,
                mistake.hint,
                mistake.severity or self.rule.severity,
            )
