"""The sequence batcher and the response cache: S001 to S004."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import ensemble, found, found_in, lines, model

from mmctl.lint.configs.sequences import SEQUENCE_CHECKS

CACHE = "response_cache { enable: true }"
DECOUPLED = "model_transaction_policy { decoupled: true }"
START, READY, CORRELATION = (f"CONTROL_SEQUENCE_{kind}" for kind in ("START", "READY", "CORRID"))
PAIR = "int32_false_true: [ 0, 1 ]"


def control(name: str, *controls: str) -> str:
    inside = ", ".join(f"{{ kind: {text} }}" for text in controls)
    return f'control_input {{ name: "{name}" control: [ {inside} ] }}'


def sequence(*parts: str) -> str:
    return model(
        "x:FP32[4]", "y:FP32[4]", batch=4, more="\n".join(["sequence_batching {", *parts, "}"])
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param(
            f"sequence_batching {{ }} {CACHE}",
            "a model with a sequence batching scheduler",
            id="a sequence model",
        ),
        pytest.param(f"{DECOUPLED} {CACHE}", "a decoupled model", id="a decoupled model"),
    ],
)
def test_a_cache_that_is_refused(tmp_path: Path, more: str, expected: str) -> None:
    text = model("x:FP32[4]", "y:FP32[4]", more=more)
    found = [f"error m/config.pbtxt:5 S001 Triton has no response cache for {expected}"]
    assert found_in(tmp_path, text, SEQUENCE_CHECKS) == found


def test_a_cache_of_an_ensemble_with_a_decoupled_step(tmp_path: Path) -> None:
    files = {
        "flow/config.pbtxt": ensemble(
            "x:FP32[4]", "y:FP32[4]", "gen x=x -> y=y", more=f"{CACHE}\n"
        ),
        "gen/config.pbtxt": model("x:FP32[4]", "y:FP32[4]", more=DECOUPLED),
    }
    assert lines(found(tmp_path, files, SEQUENCE_CHECKS)) == [
        "error flow/config.pbtxt:5 S001 Triton has no response cache for an ensemble with a "
        "decoupled model among its steps"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            model("x:FP32[-1,-1]", "y:FP32[4]", more=CACHE),
            [
                "input `x` may have the same bytes in two shapes, and the response cache does not "
                "compare shapes"
            ],
            id="two free dims",
        ),
        pytest.param(
            model("x:FP32[-1]", "y:FP32[4]", batch=4, more=CACHE),
            [
                "input `x` may have the same bytes in two shapes, and the response cache does not "
                "compare shapes"
            ],
            id="a free dim and a batch",
        ),
        pytest.param(
            model("x:FP32[4]", "y:FP32[4] z:FP32[4]", more=CACHE),
            ["the response cache does not compare which of the 2 outputs a request asks for"],
            id="two outputs",
        ),
        pytest.param(model("x:FP32[-1]", "y:FP32[4]", more=CACHE), [], id="one free dim"),
        pytest.param(model("x:FP32[4]", "y:FP32[4]", batch=4, more=CACHE), [], id="fixed dims"),
        pytest.param(
            model("x:FP32[-1,-1]", "y:FP32[4]", more="response_cache { enable: false }"),
            [],
            id="no cache",
        ),
    ],
)
def test_a_cache_that_may_answer_wrongly(tmp_path: Path, text: str, expected: list[str]) -> None:
    end = ": it gives the answer of another"
    found = [line.partition(" S002 ")[2] for line in found_in(tmp_path, text, SEQUENCE_CHECKS)]
    assert found == [f"{line}{end}" for line in expected]


VALUES = "`int32_false_true`, `fp32_false_true`, `bool_false_true`"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [control("S", f"{START} {PAIR}"), control("S", f"{READY} {PAIR}")],
            ["the control tensor `S` is specified for multiple controls"],
            id="one tensor twice",
        ),
        pytest.param(
            [control("S", f"{START} {PAIR}"), control("T", f"{START} {PAIR}")],
            [f"`{START}` has multiple tensors: `S` and `T`"],
            id="one control twice",
        ),
        pytest.param(
            [control("", f"{START} {PAIR}")], ["a control input needs a `name`"], id="no name"
        ),
        pytest.param(
            [control("S", START)], [f"`{START}` has no value: one of {VALUES}"], id="no values"
        ),
        pytest.param(
            [control("S", f"{START} {PAIR} fp32_false_true: [ 0, 1 ]")],
            [f"`{START}` has more than one value: `int32_false_true`, `fp32_false_true`"],
            id="values of two types",
        ),
        pytest.param(
            [control("S", f"{START} int32_false_true: [ 0, 1, 2 ]")],
            [f"`int32_false_true` of `{START}` must have exactly 2 entries, and has 3"],
            id="three values",
        ),
        pytest.param(
            [control("C", f"{CORRELATION} {PAIR}")],
            [f"`{CORRELATION}` takes no `int32_false_true`"],
            id="values for the id",
        ),
        pytest.param(
            [control("C", f"{CORRELATION} data_type: TYPE_FP32")],
            [
                f"`{CORRELATION}` needs a data type: TYPE_UINT64, TYPE_INT64, TYPE_UINT32, "
                "TYPE_INT32, TYPE_STRING"
            ],
            id="a fraction for the id",
        ),
        pytest.param(
            [
                control("S", f"{START} {PAIR}"),
                control("R", f"{READY} {PAIR}"),
                control("C", f"{CORRELATION} data_type: TYPE_UINT64"),
            ],
            [],
            id="three controls",
        ),
        pytest.param(
            [control("S", f"{START} {PAIR}", f"{READY} {PAIR}")], [], id="two in a tensor"
        ),
    ],
)
def test_control_inputs(tmp_path: Path, parts: list[str], expected: list[str]) -> None:
    found = found_in(tmp_path, sequence(*parts), SEQUENCE_CHECKS)
    assert [line.partition(" S003 ")[2] for line in found] == expected


@pytest.mark.parametrize(("share", "wrong"), [("1.5", True), ("-0.5", True), ("0.5", False)])
def test_slot_utilization_is_a_share(tmp_path: Path, share: str, wrong: bool) -> None:
    text = sequence(f"direct {{ minimum_slot_utilization: {share} }}")
    message = f"`minimum_slot_utilization` is {share}, and must be in the range 0 to 1"
    expected = [f"error m/config.pbtxt:6 S004 {message}"] if wrong else []
    assert found_in(tmp_path, text, SEQUENCE_CHECKS) == expected
