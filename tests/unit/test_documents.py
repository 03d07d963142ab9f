"""YAML with positions: what is read, and how mistakes are told."""

import pytest

from mmctl.documents import Entry, Flag, load_entry, parse_document
from mmctl.errors import InvalidFiles


class Inner(Entry):
    size: int
    fast: Flag = False


class Outer(Entry):
    release: str
    inner: Inner
    names: tuple[str, ...] = ()


def findings(text: str) -> list[str]:
    with pytest.raises(InvalidFiles) as caught:
        load_entry(Outer, parse_document(text, "f.yaml"))
    return [finding.text() for finding in caught.value.findings]


def test_scalars_stay_text_until_a_field_types_them() -> None:
    entry = load_entry(Outer, parse_document("release: 24.10\ninner: {size: 3}", "f.yaml"))
    assert (entry.release, entry.inner.size) == ("24.10", 3)


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "n"])
def test_yaml_1_1_booleans_are_words(word: str) -> None:
    assert parse_document(f"{word}: {word}", "f.yaml").data == {word: word}


@pytest.mark.parametrize("word", ["yes", "1", "True", "on"])
def test_a_flag_takes_true_and_false_only(word: str) -> None:
    assert findings(f"release: a\ninner: {{size: 1, fast: {word}}}") == [
        "f.yaml:2:24: Y005 `fast`: write true or false"
    ]


def test_every_wrong_key_is_named_at_once_with_the_nearest_right_one() -> None:
    assert findings("relase: a\ninner:\n  size: x\n  fats: true\n") == [
        "f.yaml:1:1: Y003 unknown key `relase`\n  hint: did you mean `release`?",
        "f.yaml:1:1: Y004 `release` is missing",
        "f.yaml:3:9: Y005 `size`: input should be a valid integer, unable to parse string as an "
        "integer",
        "f.yaml:4:3: Y003 unknown key `fats`\n  hint: did you mean `fast`?",
    ]


def test_a_doubled_key_is_told_with_its_first_line() -> None:
    assert findings("release: a\ninner: {size: 1}\nrelease: b\n") == [
        "f.yaml:3:1: Y002 key `release` stands here twice, first in line 1"
    ]


def test_an_unquoted_type_with_brackets_gets_the_hint_to_quote_it() -> None:
    (finding,) = findings("inner: {size: fp32[3], fast: true}")
    assert finding.startswith("f.yaml:1:19: Y001")
    assert 'quote a type that has brackets inside { }: "fp32[384]"' in finding


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: [", id="open bracket"),
        pytest.param("\t- a", id="tab"),
        pytest.param("a: &x [*x]", id="anchor inside itself"),
        pytest.param("a: " + "[" * 5000, id="nested without end"),
        pytest.param("a: \x00", id="control character"),
        pytest.param("? [1]\n: 2", id="list as a key"),
        pytest.param("a: 1\n---\nb: 2", id="two documents"),
        pytest.param("a: &x {a: *x, b: *x}", id="anchor inside itself twice"),
        pytest.param('a: "\\ud800"', id="half a character"),
        pytest.param('"\\ud800": a', id="half a character as a key"),
    ],
)
def test_broken_text_is_a_finding_and_never_a_traceback(text: str) -> None:
    with pytest.raises(InvalidFiles):
        parse_document(text, "f.yaml")


def test_anchors_that_multiply_are_refused_at_once() -> None:
    anchors = "".join(f"b{n + 1}: &b{n + 1} [{', '.join([f'*b{n}'] * 10)}]\n" for n in range(9))
    assert findings(f"b0: &b0 [x]\n{anchors}") == [
        "f.yaml:1:1: Y001 file has more than 100000 values, anchors followed"
    ]


def test_a_tab_gets_the_hint_to_use_spaces() -> None:
    (finding,) = findings("inner:\n\tsize: 1\n")
    assert finding.endswith("hint: indent with spaces: YAML takes no tabs there")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("release: [a]\ninner: {size: 1}", "1:10: Y005 `release`: write one value, not "
                     "a list or a mapping", id="a list for one value"),
        pytest.param("release: a\ninner: 5", "2:8: Y005 `inner`: write a mapping: {KEY: VALUE}",
                     id="a value for a mapping"),
        pytest.param("release: a\ninner: {size: 1}\nnames: b", "3:8: Y005 `names`: write a list: "
                     "[a, b]", id="a value for a list"),
        pytest.param("[a]", "1:1: Y005 write a mapping: {KEY: VALUE}", id="no mapping at all"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_told_in_the_words_of_yaml(text: str, expected: str) -> None:
    assert findings(text) == [f"f.yaml:{expected}"]


def test_an_empty_file_is_an_empty_mapping() -> None:
    assert parse_document("# nothing\n", "f.yaml").data == {}


def test_a_file_that_is_no_mapping_is_told() -> None:
    assert findings("- a\n") != []
