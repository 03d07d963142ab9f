"""Every rule that mmctl knows, one table: what `check --explain CODE` reads.

Rules about a pipeline are found by `pipeline.check_pipeline`, those about any YAML file when it is
read, those about engines by `engines.check_engine`; rules about repositories come with the checker.
"""

from __future__ import annotations

from mmctl.lint.engines import ENGINE_RULES
from mmctl.pipeline import WIRING_RULES, Rule

__all__ = ["DOCUMENT_RULES", "ENGINE_RULES", "RULES", "Rule"]

DOCUMENT_RULES: tuple[Rule, ...] = (
    Rule(
        "Y001",
        "not YAML",
        "The file cannot be parsed. Inside { } a type with brackets is quoted: "
        '{pixels: "fp32[3,224,224]"}.',
    ),
    Rule(
        "Y002",
        "key that cannot stand here",
        "Keys are words, each stands once in its mapping, and nesting has a limit.",
    ),
    Rule(
        "Y003",
        "unknown key",
        "Keys that mmctl does not know are errors, so that a misspelt one is never ignored.",
    ),
    Rule("Y004", "missing key", "The mapping needs this key."),
    Rule(
        "Y005",
        "wrong value",
        "The value is not what its key takes. Booleans are true and false; numbers have no unit.",
    ),
)

RULES: dict[str, Rule] = {
    rule.code: rule for rule in (*DOCUMENT_RULES, *WIRING_RULES, *ENGINE_RULES)
}
