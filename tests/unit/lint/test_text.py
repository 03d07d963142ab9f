"""config.pbtxt as text: C001 to C004, C016 and E003, and the message that is left."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mmctl.lint.text import read_config_text
from mmctl.triton.pbtxt import new_message
from mmctl.triton.releases import parse_release
from mmctl.triton.schema import ROOT, FieldKind, fields_of

Row = tuple[str, int, int, str]

EXCLUDE = "(line 1) exclude each other"


def found(text: str, release: str | None = None, shown: str = "config.pbtxt") -> list[Row]:
    config = read_config_text(text, shown, release=parse_release(release) if release else None)
    return [(f.code, f.line, f.column, f.message) for f in config.findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            'input [ { data_type: TYPE_FLOAT32 } ]',
            ("C001", 1, 22, "`data_type` has no word `TYPE_FLOAT32`"),
            id="a word of another library",
        ),
        pytest.param(
            'output [ { data_type: "TYPE_FP32" } ]',
            ("C001", 1, 23, "`data_type` has no word `TYPE_FP32`"),
            id="a word in quotes",
        ),
        pytest.param(
            "max_batch_size: ${max_batch}",
            ("C002", 1, 17, "placeholder `max_batch` is not filled"),
            id="a shell placeholder",
        ),
        pytest.param(
            'name: "{{ name }}"',
            ("C002", 1, 8, "placeholder `name` is not filled"),
            id="a Jinja placeholder in a string",
        ),
        pytest.param(
            "{% if gpu %}\nname: 'a'\n{% endif %}",
            ("C002", 1, 1, "placeholder `{% if gpu %}` is not filled"),
            id="a Jinja block",
        ),
        pytest.param(
            "input [ { data_type: TYPE_#DTYPE } ]",
            ("C002", 1, 27, "placeholder `DTYPE` is not filled"),
            id="a placeholder that reads as a remark",
        ),
        pytest.param(
            "max_batch_size: MAX_BATCH",
            ("C002", 1, 17, "`max_batch_size` takes a whole number, not `MAX_BATCH`"),
            id="a word in place of a number",
        ),
        pytest.param(
            "max_batch_size:\nname: 'a'",
            ("C003", 1, 1, "`max_batch_size` has no value"),
            id="a value left empty",
        ),
        pytest.param(
            "name: 'a'\nname: 'b'",
            ("C003", 2, 1, "`name` stands here twice, first in line 1"),
            id="a field twice",
        ),
        pytest.param(
            "max_batch_size: '8'",
            ("C003", 1, 17, "`max_batch_size` takes a whole number, not `8`"),
            id="a number in quotes",
        ),
        pytest.param(
            "max_batch_size: 3000000000",
            ("C003", 1, 17, "`max_batch_size` takes a whole number, not `3000000000`"),
            id="a number out of range",
        ),
        pytest.param(
            "instance_group { count: 1.5 }",
            ("C003", 1, 25, "`count` takes a whole number, not `1.5`"),
            id="half an instance",
        ),
        pytest.param(
            "name: [ 'a' ]",
            ("C003", 1, 1, "`name` takes one value, no list"),
            id="a list in place of a value",
        ),
        pytest.param(
            "input: 3",
            ("C003", 1, 8, "`input` takes a block { ... }, not `3`"),
            id="a value in place of a block",
        ),
        pytest.param(
            "model_transaction_policy { decoupled: yes }",
            ("C003", 1, 39, "`decoupled` takes true or false, not `yes`"),
            id="a flag in other words",
        ),
        pytest.param(
            "sequence { }",
            ("C004", 1, 1, "unknown field `sequence`"),
            id="a field that is not there",
        ),
        pytest.param(
            "input [ { nmae: 'x' } ]",
            ("C004", 1, 11, "unknown field `nmae`"),
            id="a misspelt field",
        ),
        pytest.param(
            "dynamic_batching { }\nsequence_batching { }",
            ("C016", 2, 1, f"`sequence_batching` and `dynamic_batching` {EXCLUDE}"),
            id="two schedulers",
        ),
        pytest.param(
            "ensemble_scheduling { }\ndynamic_batching { }",
            ("E012", 2, 1, f"`dynamic_batching` and `ensemble_scheduling` {EXCLUDE}"),
            id="a scheduler in an ensemble",
        ),
        pytest.param(
            "ensemble_scheduling { step [ { output_map { key: 'y' value: 'a' }\n"
            "output_map { key: 'y' value: 'b' } } ] }",
            ("E003", 2, 12, "`output_map` has the key `y` twice"),
            id="a key twice",
        ),
        pytest.param(
            "parameters { key: 'a' val: { string_value: 'b' } }",
            ("C004", 1, 23, "unknown field `val`"),
            id="a map entry with another word",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_the_text_is_said_at_its_place(text: str, expected: Row) -> None:
    assert found(text)[:1] == [expected]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("input [ { data_type: TYPE_BYTES } ]", "write `TYPE_STRING`"),
        ("input [ { data_type: FP32 } ]", "write `TYPE_FP32`"),
        ("input [ { data_type: type_int64 } ]", "write `TYPE_INT64`"),
        ("instance_group { kind: KIND_CUDA }", "write `KIND_GPU`"),
        ("instance_group { kind: cpu }", "write `KIND_CPU`"),
        ("input [ { data_type: TYPE_UNIT8 } ]", "did you mean `TYPE_UINT8`?"),
        ("dynamic_batchin { }", "did you mean `dynamic_batching`?"),
        ("max_batch_size: ${x}", "fill the template, or check it with `--set x=VALUE`"),
    ],
)
def test_the_hint_offers_the_right_word(text: str, hint: str) -> None:
    assert read_config_text(text, "config.pbtxt").findings[0].hint == hint


def test_fields_are_as_old_as_the_release_that_brought_them() -> None:
    text = "ensemble_scheduling { max_inflight_requests: 4 }"
    assert found(text) == []
    assert found(text, "25.11") == []
    assert found(text, "24.10") == [
        (
            "C004",
            1,
            23,
            "`max_inflight_requests` came with Triton 25.11; 24.10 refuses the file",
        )
    ]


def test_all_mistakes_are_told_at_once() -> None:
    text = "nmae: 'a'\ninput [ { data_type: TYPE_X dims: [ a ] } ]"
    assert [row[0] for row in found(text)] == ["C004", "C001", "C003"]


def test_a_second_value_counts_where_the_first_is_nothing_to_protobuf() -> None:
    config = read_config_text("max_batch_size: 0\nmax_batch_size: 8", "c")
    assert [(f.code, f.severity) for f in config.findings] == [("C003", "warning")]
    assert config.message.max_batch_size == 8


def test_a_template_is_no_mistake_where_its_name_says_so() -> None:
    config = read_config_text("max_batch_size: ${n}", "config.pbtxt.template")
    assert [finding.severity for finding in config.findings] == ["info"]


def test_values_fill_placeholders_and_what_is_left_is_checked() -> None:
    text = 'name: "{{ name }}"\nmax_batch_size: ${n}\n# ${remark}\ninput [ { data_type: TYPE_#T } ]'
    config = read_config_text(text, "c", values={"name": "a", "n": "8", "T": "X"})
    assert [f.code for f in config.findings] == ["C001"]
    assert (config.message.name, config.message.max_batch_size) == ("a", 8)


def test_a_remark_is_no_placeholder() -> None:
    assert found("# ${a} {{ b }}\nname: 'x' # TYPE_#D") == []


def test_a_remark_right_behind_a_value_is_no_placeholder() -> None:
    assert found("max_batch_size: 8#rows\nbackend: 'python'#the code") == []


def test_places_are_found_by_fields_numbers_and_keys() -> None:
    text = (
        "input [\n  { name: 'x'\n    dims: [ 1,\n 2 ] },\n  { name: 'y' }\n]\n"
        "parameters { key: 'a' }\nparameters {\n  key: 'b'\n  value: { string_value: 'v' } }\n"
    )
    config = read_config_text(text, "c")

    def place(*location: str | int) -> tuple[int, int]:
        position = config.at(*location)
        return position.line, position.column

    assert place("input", 0, "dims") == (3, 5)
    assert place("input", 0, "dims", 1) == (4, 2)
    assert place("input", 1) == (5, 3)
    assert place("parameters", "b", "value", "string_value") == (10, 12)
    assert place("parameters", "a") == (7, 1)
    assert place("output", 0) == (1, 1)


def test_a_file_without_end_is_not_read() -> None:
    assert found("#" * (4 * 1024 * 1024 + 1)) == [("C003", 1, 1, "the file is larger than 4 MiB")]


STRAYS = ("}", "{", "[", ",", "x", "-", "# x\n", '"a"', r'"\xff"', "TYPE_X", "99999999999", "")
VALUES = {
    "string": ['"a"', "'b'", '"a" "b"', r'"\n\x41\u00e9"'],
    "flag": ["true", "false", "1", "0", "t", "False"],
    "integer": ["0", "1", "8", "-1", "0x10", "010", "2147483648", "-3"],
    "float": ["0", "1.5", "-.5e3", "1f", "inf", "nan", "0x10"],
    "word": ["0"],
}


def written(kind: str, random: Random, depth: int) -> str:
    """Fields of a message as text: mostly right, now and then a stray token or a doubled field."""
    fields = list(fields_of(kind).values())
    lines = []
    for field in random.choices(fields, k=random.randint(0, 3) if fields else 0):
        if field.takes == "message" and depth > 3:
            continue
        lines.append(written_field(field, random, depth))
        if random.random() < 0.01:
            lines.append(random.choice(STRAYS))
    return random.choice(["\n", " ", ", ", "; "]).join(lines)


def written_field(field: FieldKind, random: Random, depth: int) -> str:
    def value() -> str:
        if random.random() < 0.01:
            return random.choice(STRAYS)
        if field.takes == "message":
            return "{ " + written(field.message, random, depth + 1) + " }"
        return random.choice([*VALUES[field.takes], *(field.words or {})])

    if field.repeated and random.random() < 0.3:
        return f"{field.name}: [ {', '.join(value() for _ in range(random.randint(0, 3)))} ]"
    colon = " " if field.takes == "message" and random.random() < 0.5 else ": "
    return f"{field.name}{colon}{value()}"


def test_protobuf_reads_what_we_read_and_as_we_read_it() -> None:
    """Differential: the same texts are refused, and the others give the same message."""
    from google.protobuf import text_format

    random = Random(7)
    verdicts = {True: 0, False: 0}
    for _ in range(1500):
        text = written(ROOT, random, 0)
        config = read_config_text(text, "c")
        message = new_message()
        try:
            text_format.Parse(text, message)
        except (text_format.ParseError, UnicodeDecodeError):
            assert config.broken, text
        else:
            assert not config.broken, (text, config.findings)
            assert str(config.message) == str(message)  # as text: nan is not itself
        verdicts[config.broken] += 1
    assert min(verdicts.values()) > 300


@pytest.mark.parametrize("folder", ["cases", "conformance"])
def test_real_files_read_the_same(shared_dir: Path, folder: str) -> None:
    from google.protobuf import text_format

    paths = list((shared_dir / folder).rglob("config.pbtxt"))
    assert len(paths) > 100
    for path in paths:
        text = path.read_text()
        message = new_message()
        config = read_config_text(text, str(path))
        try:
            text_format.Parse(text, message)
        except text_format.ParseError:
            assert config.broken, path
        else:
            assert config.message == message, path
