"""Findings as SARIF 2.1.0, which code review tools read.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from urllib.parse import quote

from mmctl import __version__
from mmctl.diagnostics import Finding, Rule, Severity
from mmctl.lint import RULES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render_sarif(findings: Sequence[Finding]) -> str:
    """One run with its findings; of the rules, those that were broken."""
    codes = sorted({finding.code for finding in findings})
    driver = {
        "name": "mmctl",
        "version": __version__,
        "rules": [_rule(code, RULES.get(code)) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(code: str, rule: Rule | None) -> dict[str, object]:
    if rule is None:
        return {"id": code}
    return {
        "id": code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(finding: Finding, index: int) -> dict[str, object]:
    text = finding.message if finding.hint is None else f"{finding.message}\nhint: {finding.hint}"
    region = {"startLine": finding.line, "startColumn": finding.column}
    uri = quote(os.fsencode(finding.path), safe="/") or "."
    if finding.path.startswith("/"):
        uri = f"file://{uri}"
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": os.fsencode(text).decode(errors="replace")},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }
