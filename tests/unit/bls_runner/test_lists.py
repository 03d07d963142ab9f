"""`foreach` and list tensors: items of all rows share calls and come back to their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bls_graphs import Pipeline, above, fails, flat, floats, node, pipeline, tensor, texts
from item_lists import pack, unpack

CROPS = tensor("crops", dims=[-1], items=True)


def packed(*rows: list[Any], dtype: str = "fp32", dims: tuple[int, ...] = (-1,)) -> Any:
    return texts(*(pack(row, dtype, dims) for row in rows))


def crops(*rows: list[list[float]]) -> Any:
    return packed(*([np.array(item, np.float32) for item in row] for row in rows))


def read(**inputs: Any) -> Any:
    """For each row its items, as lists, written as text."""
    rows = [[item.tolist() for item in unpack(blob, "fp32", [-1])] for [blob] in inputs["y"]]
    return texts(*(repr(row).encode() for row in rows))


def each(cut: Any, a: Any = lambda x: {"y": 2 * x}, **keys: Any) -> Pipeline:
    """`cut` gives lists, `a` runs for each item of them, `read` shows what became of them."""
    item = {"outputs": [tensor("y", dims=[-1], items=True)], "foreach": True, **keys}
    nodes = [
        node("cut", {"x": "x"}, outputs=[CROPS]),
        node("a", {"x": "cut.crops*"}, **item),
        node("read", {"y": "a.y"}, outputs=[tensor("y", "string")]),
    ]
    return pipeline(nodes, cut=lambda x: {"crops": cut}, a=a, read=read)


def shown(demo: Pipeline, rows: int) -> list[Any]:
    return [eval(text) for text in demo.ask(*range(rows)).rows()]


def test_a_list_goes_from_step_to_step_as_one_value_per_row() -> None:
    blob = crops([[1, 2]], [])
    demo = pipeline(
        [node("cut", {"x": "x"}, outputs=[CROPS]), node("b", {"items": "cut.crops"})],
        cut=lambda x: {"crops": blob}, b=lambda items: floats(*(len(row[0]) for row in items)),
    )  # fmt: skip
    assert demo.ask(1, 2).rows() == [24, 8]
    assert demo.models.of("b")[0].inputs["items"] is blob


def test_the_callee_runs_for_each_item() -> None:
    assert shown(each(crops([[1, 2], [3, 4]])), 1) == [[[2, 4], [6, 8]]]


def test_items_come_back_in_their_rows_and_their_order() -> None:
    demo = each(crops([[1], [2]], [], [[3], [4], [5]]))
    assert shown(demo, 3) == [[[2], [4]], [], [[6], [8], [10]]]


def test_items_of_all_rows_share_a_call() -> None:
    demo = each(crops([[1], [2]], [[3]]))
    shown(demo, 2)
    assert [flat(call.inputs["x"]) for call in demo.models.of("a")] == [[1, 2, 3]]


def test_items_of_one_shape_go_together_whatever_lies_between_them() -> None:
    demo = each(crops([[1], [2, 3], [4]], [[5, 6], [7]]))
    assert shown(demo, 2) == [[[2], [4, 6], [8]], [[10, 12], [14]]]
    assert sorted(flat(c.inputs["x"]) for c in demo.models.of("a")) == [[1, 4, 7], [2, 3, 5, 6]]


def test_there_are_as_few_calls_as_the_callee_s_batch_allows() -> None:
    demo = each(crops([[1], [2], [3]], [[4], [5]]), max_batch=2)
    assert shown(demo, 2) == [[[2], [4], [6]], [[8], [10]]]
    sizes = [len(call.inputs["x"]) for call in demo.models.of("a")]
    assert sorted(sizes) == [1, 2, 2]


def test_a_callee_without_batch_axis_gets_one_item() -> None:
    demo = each(crops([[1, 2], [3, 4]]), max_batch=0)
    assert shown(demo, 1) == [[[2, 4], [6, 8]]]
    assert [call.inputs["x"].shape for call in demo.models.of("a")] == [(2,), (2,)]


@pytest.mark.parametrize("rows", [1, 2])
def test_zero_items_are_no_call_and_an_empty_list(rows: int) -> None:
    demo = each(crops(*[[]] * rows))
    assert shown(demo, rows) == [[]] * rows
    assert "a" not in demo.models.called()


def test_other_inputs_are_repeated_for_each_item() -> None:
    demo = pipeline(
        [
            node("cut", {"x": "x"}, outputs=[CROPS]),
            node("a", {"x": "cut.crops*", "by": "x"}, foreach=True,
                 outputs=[tensor("y", dims=[-1], items=True)]),
            node("read", {"y": "a.y"}, outputs=[tensor("y", "string")]),
        ],
        cut=lambda x: {"crops": crops([[1], [2]], [[3]])},
        a=lambda x, by: x * by, read=read,
    )  # fmt: skip
    assert [eval(row) for row in demo.ask(10, 100).rows()] == [[[10], [20]], [[300]]]


PAIRS = [
    node("cut", {"x": "x"}, outputs=[CROPS, tensor("names", "string", items=True)]),
    node("a", {"x": "cut.crops*", "n": "cut.names*"}, foreach=True,
         outputs=[tensor("y", "string", items=True)]),
    node("read", {"items": "a.y"}, outputs=[tensor("y", "string")]),
]  # fmt: skip


def join(items: Any) -> Any:
    return texts(*(b"|".join(unpack(blob, "string", [])) for [blob] in items))


def test_several_lists_are_given_item_by_item() -> None:
    names = packed([b"p", b"q"], [b"r"], dtype="string", dims=())
    demo = pipeline(
        PAIRS,
        cut=lambda x: {"crops": crops([[1], [2]], [[3]]), "names": names},
        a=lambda x, n: texts(*(n[i, 0] + b"%d" % x[i, 0] for i in range(len(x)))),
        read=join,
    )
    assert demo.ask(1, 2).rows() == [b"p1|q2", b"r3"]


def test_lists_of_different_length_fail_the_node() -> None:
    names = packed([b"p"], [b"r"], dtype="string", dims=())
    demo = pipeline(PAIRS, cut=lambda x: {"crops": crops([[1], [2]], [[3]]), "names": names})
    message = "lists that go item by item differ in length: `x`, `n` have [[2, 1], [1, 1]]"
    assert str(demo.ask(1, 2).error()) == f"node `a`: {message}"


@pytest.mark.parametrize(
    ("dtype", "items"),
    [
        pytest.param("int64", [np.int64(1), np.int64(2)], id="numbers"),
        pytest.param("string", [b"a", b""], id="text"),
    ],
)
def test_items_may_be_single_values(dtype: str, items: list[Any]) -> None:
    demo = pipeline(
        [
            node("cut", {"x": "x"}, outputs=[tensor("c", dtype, items=True)]),
            node("a", {"x": "cut.c*"}, foreach=True, outputs=[tensor("y", dtype, items=True)]),
            node("read", {"items": "a.y"}, outputs=[tensor("y", "string")]),
        ],
        cut=lambda x: {"c": packed(items, dtype=dtype, dims=())},
        a=lambda x: {"y": x[::-1]},
        read=lambda items: texts(repr(unpack(items[0, 0], dtype, [])).encode()),
    )
    [row] = demo.ask(1).rows()
    assert row == repr(unpack(pack(items[::-1], dtype, []), dtype, [])).encode()
    assert demo.models.of("a")[0].inputs["x"].shape == (2, 1)


def test_a_failed_item_fails_the_node() -> None:
    demo = each(crops([[1], [2]]), a=fails(), max_batch=1)
    assert str(demo.ask(1).error()) == "node `a`: no"


def test_a_default_is_a_list_for_each_row() -> None:
    demo = each(crops([[1]], [[2]]), a=fails(), on_error=[[7, 8], 9])
    assert shown(demo, 2) == [[[7, 8], [9]]] * 2


def test_rows_that_a_condition_leaves_out_have_no_list() -> None:
    nodes = [
        node("cut", {"x": "x"}, outputs=[CROPS], when=above("x", 1)),
        node("a", {"x": "cut.crops*"}, foreach=True, outputs=[tensor("y", dims=[-1], items=True)]),
        node("read", {"all": "x", "y": "a.y?"}, outputs=[tensor("y", "string")]),
    ]
    demo = pipeline(
        nodes,
        cut=lambda x: {"crops": crops(*([[value], [value]] for value in flat(x)))},
        a=lambda x: {"y": 2 * x},
        read=lambda all, y=None: read(y=y) if y is not None else texts(*[b"none"] * len(all)),
    )
    assert demo.ask(3, 0, 2).rows() == [b"[[6.0], [6.0]]", b"none", b"[[4.0], [4.0]]"]


def test_lists_of_two_branches_are_merged() -> None:
    lists = {"outputs": [tensor("y", dims=[-1], items=True)]}
    few = above("x", 1)
    nodes = [
        node("cut", {"x": "x"}, outputs=[CROPS]),
        node("a", {"x": "cut.crops*"}, foreach=True, when=few, **lists),
        node("b", {"x": "x"}, when=["not", few], **lists),
        {**node("s", {}, branches=["a", "b"], model="", **lists)},
        node("read", {"y": "s.y"}, outputs=[tensor("y", "string")]),
    ]
    demo = pipeline(
        nodes,
        cut=lambda x: {"crops": crops([[1]], [[2]], [[3]])},
        a=lambda x: {"y": 2 * x}, b=lambda x: {"y": crops([[9], [9, 9]])}, read=read,
    )  # fmt: skip
    rows = [eval(row) for row in demo.ask(2, 1, 3).rows()]
    assert rows == [[[2]], [[9], [9, 9]], [[6]]]


@pytest.mark.parametrize(
    ("cut", "a", "message"),
    [
        pytest.param(texts(b"junk"), None, "node `a`: ValueError: a list of 4 bytes is cut short",
                     id="what is no list"),
        pytest.param(crops([[1]]), lambda x: {"y": x[:0]},
                     "node `a`: its output `y` has shape [0, 1], expected [1, -1]", id="no answer"),
        pytest.param(floats(1), None, "node `a`: TypeError: object of type 'numpy.float32' has no",
                     id="a number"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_list_fails_the_node(cut: Any, a: Any, message: str) -> None:
    demo = each(cut, a) if a else each(cut)
    assert str(demo.ask(1).error()).startswith(message)


def test_a_list_that_cannot_be_packed_fails_the_node_that_takes_it() -> None:
    demo = each(
        crops([[1]]),
        a=lambda x: {"y": np.array([[5]], object)},
        outputs=[tensor("y", "string", items=True)],
    )
    message = "node `read`: ValueError: item 0 holds int, declared string"
    assert str(demo.ask(1).error()) == message
