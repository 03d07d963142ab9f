"""Mistakes that people really made: each must be found, and what they did then must pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mmctl.building.check import check
from mmctl.diagnostics import Finding, Severity
from mmctl.lint.repository import Target

CASES = Path(__file__).parents[4] / "shared" / "cases"

GPUS = {"G001": 0, "G002": 1}
"""What the target of a case has, where the mistake rests on it."""

WARNINGS_HERE = {"L001"}
"""A mistake in code that only shows when something else fails is a warning."""

NEEDS_A_RUN = {"032_batch_constant_hidden_in_graph"}
"""Errors that only a run shows: tests of `check --run` look at them. Cases without rules are about
requests, not about repositories.
"""


def cases(repository: str) -> list[Any]:
    if not CASES.is_dir():
        reason = "the data folder beside the checkout does not exist"
        return [pytest.param(CASES, marks=pytest.mark.skip(reason=reason), id="no cases")]
    folders = sorted(folder for folder in CASES.iterdir() if (folder / repository).is_dir())
    return [pytest.param(folder, id=folder.name) for folder in folders]


def found(repository: Path, rules: list[str]) -> tuple[Finding, ...]:
    gpus = next((GPUS[rule] for rule in rules if rule in GPUS), None)
    return check(repository, target=Target(gpus=gpus))


def errors(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.text() for finding in findings if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("case", cases("model_repository"))
def test_the_mistake_of_a_case_is_found(case: Path) -> None:
    expected = json.loads((case / "expected.json").read_text())
    rules = [rule[:4] for rule in expected["rules"]]
    findings = found(case / "model_repository", rules)
    codes = {finding.code for finding in findings}
    match expected["verdict"]:
        case "error" if rules and case.name not in NEEDS_A_RUN:
            assert errors(findings) or codes & WARNINGS_HERE
            assert codes & set(rules), findings
        case "warning":
            assert not errors(findings)
            assert codes & set(rules), findings
        case "ok" | "right value":
            assert not errors(findings)


@pytest.mark.parametrize("case", cases("model_repository_fixed"))
def test_what_they_did_then_is_no_error(case: Path) -> None:
    expected = json.loads((case / "expected.json").read_text())
    assert not errors(found(case / "model_repository_fixed", expected["rules"]))
