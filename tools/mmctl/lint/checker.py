"""Runs the table of rules over a repository. Opens files, starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mmctl.diagnostics import Finding, Severity, in_order
from mmctl.lint.repository import Model, Repository
from mmctl.lint.rules import Check
from mmctl.lint.tables import CHECKS


def check_repository(
    repository: Repository, models: Iterable[str] | None = None, checks: Sequence[Check] = CHECKS
) -> tuple[Finding, ...]:
    """Everything wrong with `models` (all by default), in order of place.

    Other models of the repository are read where one calls them, and not judged. Remarks are for
    what people wrote: on a folder that mmctl generates there is nothing to act on.
    """
    names = list(repository.models) if models is None else list(models)
    found = [
        finding
        for name in names
        for finding in _check(repository.models[name], repository, checks)
        if finding.severity is not Severity.INFO or not repository.models[name].generated
    ]
    return in_order(found)


def _check(model: Model, repository: Repository, checks: Sequence[Check]) -> Iterator[Finding]:
    yield from model.findings
    if model.config is not None:
        yield from model.config.findings
    if model.readable:
        for check in checks:
            yield from check.findings(model, repository)
