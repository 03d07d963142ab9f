"""What an ensemble cannot keep is understood, checked, and answered with what it needs."""

from __future__ import annotations

import pytest
from pipelines import checked, lines

TEXT = """
pipeline: demo
inputs: {e: "fp32[4]", lang: string}
nodes:
  head: {model: head, inputs: {embedding: e}}
  spell: {model: speller, inputs: {text: lang}}
outputs: {score: head.score, probs: head.probs, lang_out: spell.text}
"""
HEAD = "head: {model: head, inputs: {embedding: e}"


def with_policy(policy: str) -> list[str]:
    """Findings when the node `head` has this policy."""
    return lines(checked(TEXT.replace(HEAD, f"{HEAD}, {policy}")))


@pytest.mark.parametrize(
    "policy",
    [
        "timeout_ms: 300",
        "retries: 1",
        "on_error: {score: -1.0}",
        "required: false",
        "hedge_ms: 20",
        "quorum: {need: 1, of: [spell]}",
        "when: \"lang == 'en'\"",
        "foreach: spell.text",
        "after: [spell]",
    ],
)
def test_each_policy_of_a_node_needs_the_bls_form(policy: str) -> None:
    key = policy.partition(":")[0]
    assert [line.partition(" ")[2] for line in with_policy(policy)] == [
        f"Y117 `head.{key}` needs the bls form, not built yet"
    ]


@pytest.mark.parametrize("policy", ["retries: 0", "on_error: fail", "required: true", "after: []"])
def test_a_policy_that_changes_nothing_needs_nothing(policy: str) -> None:
    assert with_policy(policy) == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param("deadline_ms: 500",
                     "1:14 Y117 `deadline_ms` needs the bls form, not built yet", id="deadline"),
        pytest.param("max_pending: 5", "1:14 Y117 `max_pending` needs the bls form, not built yet",
                     id="admission"),
        pytest.param("provenance: true", "1:13 Y117 `provenance` needs the bls form, not built yet",
                     id="provenance"),
        pytest.param("form: bls", "1:7 Y117 the bls form is not built yet", id="pinned bls"),
        pytest.param("form: fused", "1:7 Y117 the fused form is not built yet", id="pinned fused"),
        pytest.param("fuse: auto",
                     "1:7 Y117 `fuse` needs the fused form, not built yet", id="fuse"),
    ],
)  # fmt: skip
def test_settings_of_the_pipeline_that_need_another_form(setting: str, expected: str) -> None:
    assert lines(checked(f"{setting}{TEXT}")) == [expected]


@pytest.mark.parametrize("setting", ["form: ensemble", "provenance: false"])
def test_settings_that_an_ensemble_keeps(setting: str) -> None:
    assert lines(checked(f"{setting}{TEXT}")) == []


def test_a_switch_and_a_list_tensor_need_the_bls_form() -> None:
    text = TEXT.replace(HEAD, "head: {switch: lang, cases: {en: {model: head}}").replace(
        "lang: string", 'lang: string, boxes: "uint8[*,8,-1,3]"'
    )
    assert [line.partition(" ")[2] for line in lines(checked(text))] == [
        "Y117 the list tensor `uint8[*,8,-1,3]` needs the bls form, not built yet",
        "Y117 `head.switch` needs the bls form, not built yet",
    ]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        pytest.param("on_error: skip", "`head.on_error` is `fail`, or a value for each output",
                     id="no values"),
        pytest.param("on_error: {scor: 0}", "`head` has no output `scor`", id="unknown output"),
        pytest.param("on_error: {score: many}",
                     "`head.on_error`: `score` is fp32, and the value is not", id="wrong type"),
        pytest.param("on_error: {probs: [0, 1, 2]}",
                     "`head.on_error`: `probs` is fp32[2], and the value is not", id="wrong shape"),
        pytest.param("on_error: {probs: [[0, 1]]}",
                     "`head.on_error`: `probs` is fp32[2], and the value is not", id="wrong rank"),
        pytest.param("after: [spel]", "`head.after` names `spel`, which is no node", id="after"),
        pytest.param("quorum: {need: 2, of: [spell]}", "`head.quorum` needs 2 of 1", id="quorum"),
        pytest.param("when: spel.text == 'a'", "`spel.text`: there is no node `spel`",
                     id="condition on an unknown node"),
        pytest.param("when: spell.txt == 'a'", "`spell` has no output `txt`",
                     id="condition on an unknown tensor"),
        pytest.param("when: \"spell.text[0] == 'a'\"", "`spell.text[0]`: one value of `spell.text` "
                     "(string) takes 0 subscripts, this has 1", id="subscripts of a single value"),
        pytest.param("when: e > 1", "`e`: one value of `e` (fp32[4]) takes 1 subscripts, this "
                     "has 0", id="a whole row"),
        pytest.param("when: 'e[4] > 1'", "`e[4]`: 4 is past the end of fp32[4]", id="past the end"),
        pytest.param("when: 'e[0:2] > 1'", "`head.when`: `e[0:2]` may not stand in a condition",
                     id="a slice"),
        pytest.param("when: __import__('os').system('true')",
                     "`head.when`: `__import__('os').system('true')` may not stand in a condition",
                     id="a call"),
        pytest.param("when: 'e[0] >'", "`head.when`: not a condition", id="not an expression"),
        pytest.param("foreach: spell.txt", "`spell` has no output `txt`", id="foreach"),
    ],
)  # fmt: skip
def test_a_policy_that_is_wrong_in_itself_is_a_finding_too(policy: str, problem: str) -> None:
    assert problem in [line.split(" ", 2)[2] for line in with_policy(policy)]


@pytest.mark.parametrize(
    "condition",
    ["e[1] < 0.8", "e[0] > e[1] and not lang == 'en'", "0 < e[0] <= 1 or spell.text != 'x'"],
)
def test_a_right_condition_has_no_finding_of_its_own(condition: str) -> None:
    found = with_policy(f'when: "{condition}"')
    assert len(found) == 1
    assert "needs the bls form" in found[0]


def test_whole_numbers_without_sign_have_no_values_below_zero() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {step: f, inputs: {x: x}, outputs: {n: uint8}, on_error: {n: -1}}
    outputs: {n: a.n}
    """
    found = lines(checked(text, steps="def f(x):\n    return {'n': x}\n"))
    assert "4:67 Y119 `a.on_error`: `n` is uint8, and the value is not" in found
    text = text.replace("uint8", "int8")
    found = lines(checked(text, steps="def f(x):\n    return {'n': x}\n"))
    assert [line.split()[1] for line in found] == ["Y117"]


@pytest.mark.parametrize(
    ("policy", "codes"),
    [("after: [spel]", ["Y117", "Y119"]), ("when: 'lang =='", ["Y117", "Y118"])],
)
def test_what_a_broken_policy_may_lead_to_is_not_called_unused(
    policy: str, codes: list[str]
) -> None:
    text = TEXT.replace(HEAD, f"{HEAD}, {policy}").replace(", lang_out: spell.text", "")
    assert [line.split()[1] for line in lines(checked(text))] == codes


def test_what_python_warns_of_is_not_printed() -> None:
    """Warnings are errors in tests, and would make this no condition at all."""
    assert [line.split()[1] for line in with_policy("when: '0if 1else 2'")] == ["Y117", "Y118"]
    assert len(with_policy("when: 'e[0] < 1or e[1] < 2'")) == 1


def test_a_condition_of_more_than_500_characters_is_refused() -> None:
    found = with_policy("when: '" + " or ".join(["e[0] < 1"] * 60) + "'")
    assert any("at most 500 characters" in line for line in found)
