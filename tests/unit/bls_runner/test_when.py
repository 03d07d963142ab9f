"""`when`: rows for which a condition is false are absent, and absence flows along edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bls_graphs import above, fails, flat, floats, node, pipeline, ref, tensor, texts

MISSING = -100.0


def read(**inputs: Any) -> Any:
    """x, or MISSING where it was left out."""
    return inputs["x"] if "x" in inputs else np.full_like(inputs["all"], MISSING)


READ = node("read", {"all": "x", "x": "a.y?"})
"""A step that takes `a.y` as `x?`."""


def test_only_rows_for_which_it_holds_are_sent() -> None:
    demo = pipeline([node("a", {"x": "x"}, when=above("x", 1)), READ], read=read)
    assert demo.ask(1, 2, 0, 3).rows() == [MISSING, 4, MISSING, 6]
    assert [flat(call.inputs["x"]) for call in demo.models.of("a")] == [[2, 3]]


def test_a_node_that_no_row_needs_is_not_called() -> None:
    demo = pipeline([node("a", {"x": "x"}, when=above("x", 1)), READ], read=read)
    assert demo.ask(0, 1).rows() == [MISSING, MISSING]
    assert demo.models.called() == ["read"]


def test_a_node_that_all_rows_need_gets_them_as_one_call() -> None:
    demo = pipeline([node("a", {"x": "x"}, when=above("x", 1)), READ], read=read)
    assert demo.ask(2, 3).rows() == [4, 6]
    assert demo.models.called() == ["a", "read"]


def test_a_node_with_an_absent_required_input_is_absent_on_that_row() -> None:
    chain = [
        node("first", {"x": "x"}, when=above("x", 1)),
        node("a", {"x": "first.y"}),
        READ,
    ]
    demo = pipeline(chain, read=read)
    assert demo.ask(1, 2).rows() == [MISSING, 8]
    assert [flat(call.inputs["x"]) for call in demo.models.of("a")] == [[4]]


def test_rows_are_grouped_by_which_optional_inputs_they_have() -> None:
    def tell(**inputs: Any) -> Any:
        return inputs["all"] + 10 * ("p" in inputs) + 100 * ("q" in inputs)

    demo = pipeline(
        [
            node("p", {"x": "x"}, when=above("x", 1)),
            node("q", {"x": "x"}, when=above("x", 2)),
            node("tell", {"all": "x", "p": "p.y?", "q": "q.y?"}),
        ],
        tell=tell,
    )
    assert demo.ask(3, 1, 2, 4, 1.5).rows() == [113, 1, 12, 114, 11.5]
    groups = [(sorted(c.inputs), flat(c.inputs["all"])) for c in demo.models.of("tell")]
    assert sorted(groups) == [
        (["all"], [1]),
        (["all", "p"], [2, 1.5]),
        (["all", "p", "q"], [3, 4]),
    ]


def test_a_node_without_any_value_is_sent_one_row_at_a_time() -> None:
    """All that it gets is that there is a row: how many there are no function could tell."""
    tell = node("tell", {"p": "p.y?", "rows__": "rows__"})
    tell["inputs"][-1]["rows"] = True

    def told(**inputs: Any) -> Any:
        return inputs.get("p", floats(MISSING))

    demo = pipeline(
        [node("p", {"x": "x"}, when=above("x", 1)), tell],
        rows=tensor("rows__", "uint8"),
        tell=told,
    )
    assert demo.ask(3, 1, 2, 0).rows() == [6, MISSING, 4, MISSING]
    sent = [{k: np.shape(v) for k, v in call.inputs.items()} for call in demo.models.of("tell")]
    assert sorted(sent, key=len) == [
        {"rows__": (1, 1)},
        {"rows__": (1, 1)},
        {"p": (2, 1), "rows__": (2, 1)},
    ]
    assert demo.models.of("tell")[0].inputs["rows__"].dtype == np.uint8


def test_an_absent_output_of_the_pipeline_is_an_error() -> None:
    demo = pipeline([node("a", {"x": "x"}, when=above("x", 1))])
    assert demo.ask(2, 3).rows() == [4, 6]
    assert str(demo.ask(1, 2).error()) == "output `y` has no value on some rows"


def test_the_condition_comes_before_what_feeds_the_node() -> None:
    """A row that is left out is absent, even where an input has failed."""
    demo = pipeline(
        [node("bad", {"x": "x"}), node("a", {"x": "bad.y"}, when=above("x", 1)), READ],
        bad=fails(), read=read,
    )  # fmt: skip
    assert demo.ask(0, 1).rows() == [MISSING, MISSING]
    assert str(demo.ask(1, 2).error()) == "node `bad`: no"


def test_a_condition_on_an_absent_value_is_false() -> None:
    demo = pipeline(
        [
            node("first", {"x": "x"}, when=above("x", 1)),
            node("a", {"x": "x"}, when=["not", above("first.y", 5)]),
            READ,
        ],
        read=read,
    )
    assert demo.ask(1, 2, 3).rows() == [MISSING, 4, MISSING]


ON_BAD = [
    node("bad", {"x": "x"}),
    node("a", {"x": "x"}, when=above("bad.y", 1), on_error=-1),
]


def test_a_condition_on_a_failed_value_fails_the_row() -> None:
    assert pipeline(ON_BAD, bad=fails()).ask(2, 3).rows() == [-1, -1]


def test_what_is_joined_by_and_is_asked_from_left_to_right() -> None:
    """A row that is out already does not care for what has failed."""
    guarded = ["and", above("x", 1), above("bad.y", 1)]
    demo = pipeline(
        [node("bad", {"x": "x"}), node("a", {"x": "x"}, when=guarded, on_error=-1), READ],
        bad=fails(), read=read,
    )  # fmt: skip
    assert demo.ask(0, 2).rows() == [MISSING, -1]


def test_a_node_with_a_condition_waits_for_what_it_looks_at() -> None:
    demo = pipeline(
        [
            node("first", {"x": "x"}),
            node("a", {"x": "x"}, when=above("first.y", 3)),
            READ,
        ],
        read=read,
    )
    assert demo.ask(1, 2).rows() == [MISSING, 4]


X, ONE = ref("x"), ["value", 1]
TRUE, FALSE = above("x", -9), above("x", 9)


@pytest.mark.parametrize(
    ("tree", "rows"),
    [
        pytest.param(["==", X, ONE], [1], id="=="),
        pytest.param(["!=", X, ONE], [0, 2], id="!="),
        pytest.param(["<", X, ONE], [0], id="<"),
        pytest.param(["<=", X, ONE], [0, 1], id="<="),
        pytest.param([">", X, ONE], [2], id=">"),
        pytest.param([">=", X, ONE], [1, 2], id=">="),
        pytest.param(["<", ONE, X], [2], id="a constant first"),
        pytest.param(["<", X, ref("z")], [0], id="two tensors"),
        pytest.param(["and", [">", X, ["value", 0]], ["<", X, ["value", 2]]], [1], id="and"),
        pytest.param(["or", ["==", X, ONE], [">", X, ONE]], [1, 2], id="or"),
        pytest.param(["or", FALSE, FALSE, ["==", X, ONE]], [1], id="or of three"),
        pytest.param(["not", ["==", X, ONE]], [0, 2], id="not"),
        pytest.param(["not", ["and", TRUE, ["==", X, ONE]]], [0, 2], id="not and"),
        pytest.param(ref("yes"), [1], id="a truth value"),
        pytest.param(["not", ref("yes")], [0, 2], id="not a truth value"),
        pytest.param(["==", ref("yes"), ["value", True]], [1], id="a truth value compared"),
        pytest.param(["==", ref("lang"), ["value", "de"]], [2], id="text"),
        pytest.param(["!=", ref("lang"), ["value", "dé"]], [0, 2], id="text beyond ASCII"),
        pytest.param([">", ref("wide", 1), ["value", 5]], [1, 2], id="a subscript"),
        pytest.param([">", ref("deep", 1, 0), ["value", 5]], [0], id="two subscripts"),
    ],
)
def test_a_condition_is_read_row_by_row(tree: Any, rows: list[float]) -> None:
    inputs = {
        "x": floats(0, 1, 2),
        "z": floats(1, 1, 1),
        "yes": np.array([[False], [True], [False]]),
        "lang": texts(b"en", "dé".encode(), b"de"),
        "wide": np.array([[9, 0], [0, 9], [9, 9]], np.float32),
        "deep": np.array([[[0, 0], [9, 0]], [[9, 9], [0, 9]], [[9, 9], [0, 9]]], np.float32),
    }
    demo = pipeline(
        [node("a", {"x": "x"}, when=tree), READ],
        inputs=[
            *(tensor(name) for name in ("x", "z")), tensor("yes", "bool"), tensor("lang", "string"),
            tensor("wide", dims=[2]), tensor("deep", dims=[2, 2]),
        ],
        a=lambda x: x, read=read,
    )  # fmt: skip
    asked = demo.ask(**inputs)
    assert [row for row in asked.rows() if row != MISSING] == rows


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        pytest.param([">", ref("t"), ["value", 1]], "TypeError: ", id="text and a number"),
        pytest.param(above("x", 0, 7), "IndexError: ", id="a subscript past the end"),
    ],
)
def test_a_condition_that_cannot_be_told_fails_the_node(tree: Any, message: str) -> None:
    inputs = {"x": floats(1), "t": texts(b"a")}
    specs = [tensor("x"), tensor("t", "string")]
    bare = pipeline([node("a", {"x": "x"}, when=tree)], inputs=specs)
    assert str(bare.ask(**inputs).error()).startswith(f"node `a`: {message}")
    absorbed = pipeline([node("a", {"x": "x"}, when=tree, on_error=-1)], inputs=specs)
    assert absorbed.ask(**inputs).rows() == [-1]
