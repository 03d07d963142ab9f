"""Protobuf's text format as a tree: what stands where, and the first place that cannot be read."""

from __future__ import annotations

import pytest

from mmctl.triton.textproto import Block, Scalar, Text, TextError, parse_textproto


def shape(block: Block) -> list[tuple[str, list[object]]]:
    """The tree without places."""
    return [
        (entry.name, [shape(v) if isinstance(v, Block) else v.text for v in entry.values])
        for entry in block.fields
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("# only a remark", []),
        ("a: 1", [("a", ["1"])]),
        ("a: -1 b: - 2", [("a", ["-1"]), ("b", ["-2"])]),
        ("a: 0x1F b: .5e3", [("a", ["0x1F"]), ("b", [".5e3"])]),
        ("a: 1.5f b: -inf", [("a", ["1.5f"]), ("b", ["-inf"])]),
        ("a: WORD", [("a", ["WORD"])]),
        ("a: 'one' b: \"two\"", [("a", ["one"]), ("b", ["two"])]),
        ("a: 'one' \"two\"", [("a", ["onetwo"])]),
        (r'a: "\n\"\x41\101\u00e9"', [("a", ['\n"AAé'])]),
        (r'a: "\xff"', [("a", [b"\xff"])]),
        ('a: "# no remark"', [("a", ["# no remark"])]),
        ("a { b: 1 }", [("a", [[("b", ["1"])]])]),
        ("a: { b: 1 }", [("a", [[("b", ["1"])]])]),
        ("a < b: 1 >", [("a", [[("b", ["1"])]])]),
        ("a [ { b: 1 }, { b: 2 } ]", [("a", [[("b", ["1"])], [("b", ["2"])]])]),
        ("a: [ 1, 2 ]", [("a", ["1", "2"])]),
        ("a: [ ]", [("a", [])]),
        ("a: 1, b: 2; c: 3", [("a", ["1"]), ("b", ["2"]), ("c", ["3"])]),
        ("a:\nb: 2", [("a", []), ("b", ["2"])]),
        ("a { b: }", [("a", [[("b", [])]])]),
    ],
)  # fmt: skip
def test_the_tree_says_what_the_text_says(text: str, expected: object) -> None:
    assert shape(parse_textproto(text)) == expected


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a {\n  b: 1\n", (1, 3), "`{` of line 1 is never closed"),
        ("a: 1 }", (1, 6), "expected a field name, found `}`"),
        ("a { b: 1 >", (1, 10), "expected a field name, found `>`"),
        ("a 1", (1, 3), "expected `:` or `{` after `a`, found `1`"),
        ("a: [ { b: 1 }\n { b: 2 } ]", (1, 14), "expected `,` or `]` in the list"),
        ("a: [ 1,", (1, 8), "expected a value, found the end of the file"),
        ('a: "open\nb: 1', (1, 4), "this string does not end in its line"),
        ("a: 12ab", (1, 4), "`12ab` is not a number"),
        ("a: $x", (1, 4), "`$` cannot stand here"),
        ("a: \x00", (1, 4), "character U+0000 cannot stand here"),
        (r'a: "\q"', (1, 4), r"`\q` is no escape that protobuf knows"),
        ("a: - b", (1, 6), "expected a number after `-`, found `b`"),
        ("a {" * 150, (1, 303), "nested more than 100 deep"),
    ],
)
def test_what_cannot_be_read_is_said_at_its_place(
    text: str, place: tuple[int, int], message: str
) -> None:
    with pytest.raises(TextError) as caught:
        parse_textproto(text)
    assert (Text(text).position(caught.value.offset), caught.value.message[: len(message)]) == (
        place,
        message,
    )


def test_every_value_knows_its_place() -> None:
    text = "a {\n  b: [ 1,\n 22 ]\n}"
    (outer,) = parse_textproto(text).fields
    (block,) = outer.values
    assert isinstance(block, Block)
    (inner,) = block.fields
    places = [Text(text).position(value.offset) for value in inner.values]
    assert places == [(2, 8), (3, 2)]
    assert isinstance(inner.values[0], Scalar)
    assert Text(text).position(inner.start) == (2, 3)
