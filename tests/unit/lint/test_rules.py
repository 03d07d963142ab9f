"""One table for all that mmctl can find."""

from __future__ import annotations

import re

from mmctl.lint import RULES
from mmctl.pipeline import WIRING_RULES


def test_every_rule_is_in_the_table_under_its_code() -> None:
    assert {rule.code for rule in WIRING_RULES} <= set(RULES)
    assert all(code == rule.code for code, rule in RULES.items())


def test_codes_are_a_family_and_three_digits() -> None:
    assert all(re.fullmatch(r"[A-Z][0-9]{3}", code) for code in RULES)


def test_titles_tell_rules_apart() -> None:
    titles = [rule.title for rule in RULES.values()]
    assert len(set(titles)) == len(titles)
