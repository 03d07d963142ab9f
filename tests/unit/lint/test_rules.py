"""One table for all that mmctl can find."""

from __future__ import annotations

import re
from pathlib import Path

from mmctl.lint import RULES
from mmctl.lint.tables import CHECKS


def test_every_rule_is_in_the_table_under_a_code_of_its_own() -> None:
    assert [rule.code for rule in RULES.values()] == list(RULES)
    codes = [check.rule.code for check in CHECKS]
    assert len(set(codes)) == len(codes)
    assert set(codes) <= set(RULES)


def test_every_code_that_is_reported_has_a_row_that_explains_it(root: Path) -> None:
    texts = (path.read_text() for path in (root / "tools" / "mmctl").rglob("*.py"))
    reported = {code for text in texts for code in re.findall(r'"([A-Z]\d{3})"', text)}
    assert reported == set(RULES)
    assert all(rule.title and rule.explanation.endswith(".") for rule in RULES.values())


def test_codes_are_a_family_and_three_digits() -> None:
    assert all(re.fullmatch(r"[A-Z][0-9]{3}", code) for code in RULES)


def test_titles_tell_rules_apart() -> None:
    titles = [rule.title for rule in RULES.values()]
    assert len(set(titles)) == len(titles)
