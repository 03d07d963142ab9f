"""`cache` of nodes: an answer is given again where everything that it rests on is the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from bls_cache import Cache, keys_of
from bls_graphs import (
    Asked,
    Gate,
    InTurn,
    Models,
    Pipeline,
    above,
    data,
    double,
    fails,
    flat,
    floats,
    node,
    pipeline,
    tensor,
    texts,
)
from bls_parts import Part
from bls_plan import Node, Plan
from bls_run import Runner
from clocks import Clock
from model_counters import CACHE_HITS, CACHE_MISSES, Counters

KEPT_BYTES = 1 << 20


def kept(nodes: Sequence[Any], outputs: Any = None, **more: Any) -> Pipeline:
    """A pipeline whose models all have a digest, and whose nodes have `cache` unless they say 0."""
    entries = [{"cache_s": 60.0, **entry} for entry in nodes]
    entries = [{k: v for k, v in e.items() if (k, v) != ("cache_s", 0)} for e in entries]
    digests = {entry["model"]: f"key of {entry['model']}" for entry in nodes}
    keys = {"digests": digests, "cache_bytes": KEPT_BYTES, **more}
    return pipeline(entries, outputs, **keys)


def one(function: Callable[..., Any] = double, **keys: Any) -> Pipeline:
    return kept([node("a", {"x": "x"}, **keys)], a=function)


def rows_asked(demo: Pipeline, name: str = "a") -> list[list[Any]]:
    """What each call of a node had as x."""
    return [flat(call.inputs["x"]) for call in demo.models.of(name)]


def outcomes(asked: Asked) -> list[dict[str, str]]:
    rows = [json.loads(row) for row in asked.rows("provenance")]
    return [{name: entry["outcome"] for name, entry in row.items()} for row in rows]


def count(demo: Pipeline, name: str = "a") -> tuple[int, int]:
    """Hits and misses, in rows."""
    counters = demo.runner.counters
    return counters.read(CACHE_HITS, name), counters.read(CACHE_MISSES, name)


# What is found, and what is not.


def test_the_same_question_is_asked_once() -> None:
    demo = one()
    assert [demo.ask(x).rows() for x in (1, 1, 2, 1)] == [[2], [2], [4], [2]]
    assert rows_asked(demo) == [[1], [2]]
    assert count(demo) == (2, 2)


def test_a_node_without_cache_is_asked_each_time_and_nothing_is_looked_up() -> None:
    demo = one(cache_s=0)
    demo.runner.cache = None  # type: ignore[assignment]
    assert [demo.ask(1).rows() for _ in range(3)] == [[2]] * 3
    assert len(demo.models.calls) == 3


def test_a_model_whose_content_is_not_known_is_asked_each_time() -> None:
    demo = kept([node("a", {"x": "x"})], digests={})
    assert [demo.ask(1).rows() for _ in range(2)] == [[2]] * 2
    assert len(demo.models.calls) == 2


def test_of_a_batch_only_rows_that_are_new_are_called_and_each_once() -> None:
    demo = one()
    assert demo.ask(1, 2).rows() == [2, 4]
    assert demo.ask(3, 2, 3, 1, 4).rows() == [6, 4, 6, 2, 8]
    assert rows_asked(demo) == [[1, 2], [3, 4]]
    assert demo.ask(4, 3, 2, 1).rows() == [8, 6, 4, 2]
    assert len(demo.models.calls) == 2


def test_where_rows_may_share_a_shape_a_call_is_found_as_a_whole() -> None:
    """An output with a free axis may be as long as the longest row of its call."""

    def padded(x: Any) -> Any:
        return np.ones((len(x), int(x.max())), np.float32) * x[:, :1]

    a = node("a", {"x": "x"}, outputs=[tensor("y", dims=[-1])])
    demo = kept([a], a=padded, provenance=True)
    for rows, called in [((1, 3), 1), ((1, 3), 1), ((1, 2), 2), ((3, 1), 3), ((1,), 4)]:
        asked = demo.ask(*rows)
        assert asked.outputs()["y"].tolist() == padded(floats(*rows)).tolist()
        assert len(demo.models.calls) == called
    assert outcomes(demo.ask(1, 3)) == [{"a": "cached"}] * 2


def test_a_model_without_batch_axis_is_found_row_by_row() -> None:
    demo = one(lambda x: 2 * x, max_batch=0)
    assert demo.ask(1, 2).rows() == [2, 4]
    assert demo.ask(2, 3).rows() == [4, 6]
    assert rows_asked(demo) == [[1], [2], [3]]


def test_items_of_lists_are_found_one_by_one() -> None:
    source = node("s", {"x": "x"}, outputs=[tensor("y", "fp32", items=True)], cache_s=0)
    a = node("a", {"x": "s.y*"}, foreach=True, outputs=[tensor("y", "fp32", items=True)])
    join = node("join", {"x": "a.y"}, cache_s=0)

    def items(x: Any) -> Any:
        from item_lists import pack

        return texts(*(pack([np.float32(i) for i in range(int(v))], "fp32", ()) for v in flat(x)))

    def total(x: Any) -> Any:
        from item_lists import unpack

        return floats(*(float(sum(unpack(row, "fp32", ()))) for row in x.ravel()))

    demo = kept([source, a, join], s=items, join=total)
    assert demo.ask(2, 0, 3).rows() == [2, 0, 6]
    assert demo.ask(4).rows() == [12]
    assert sorted(x for call in rows_asked(demo) for x in call) == [0, 1, 2, 3]


def test_the_outcome_is_told_row_by_row() -> None:
    demo = kept([node("a", {"x": "x"}), node("b", {"x": "a.y"}, cache_s=0)], provenance=True)
    assert outcomes(demo.ask(1)) == [{"a": "ran", "b": "ran"}]
    assert outcomes(demo.ask(2, 1)) == [{"a": "ran", "b": "ran"}, {"a": "cached", "b": "ran"}]


# The key: what is not wholly the same is another question.


def keys(
    arrays: Mapping[str, Any], said: bytes = b"", pin: int = 3, digest: str = "d", **entry: Any
) -> list[bytes]:
    entry = {**node("a", {}, cache_s=60, model="m"), **entry}
    rows = len(next(iter(arrays.values())))
    a = Node(entry, {entry["model"]: pin}, {entry["model"]: digest})
    return keys_of(a, Part(dict(arrays), range(rows), batched=a.max_batch > 0), said)


X = floats(1, 2)
BASE: dict[str, Any] = {"arrays": {"x": X}}
WHOLE = {"outputs": [tensor("y", dims=[-1])]}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"arrays": {"x": floats(1.5, 2.5)}}, id="bytes"),
        pytest.param({"arrays": {"x": X.view(np.int32)}}, id="dtype, the same bytes"),
        pytest.param({"arrays": {"x": X.astype(np.float64)}}, id="precision"),
        pytest.param({"arrays": {"x": X[:, :, None]}}, id="shape, the same bytes"),
        pytest.param({"arrays": {"z": X}}, id="name of the input"),
        pytest.param({"arrays": {"x": X, "z": X}}, id="one more input"),
        pytest.param({"said": b'{"scale": 3}'}, id="parameter"),
        pytest.param({"model": "n"}, id="model"),
        pytest.param({"pin": 4}, id="version"),
        pytest.param({"digest": "e"}, id="content under the same version"),
        pytest.param({"outputs": [tensor("y"), tensor("z")]}, id="one more output"),
        pytest.param({"outputs": [tensor("z")]}, id="another output"),
        pytest.param({"outputs": [tensor("y", dims=[-1])]}, id="whole calls"),
        pytest.param({"foreach": True}, id="items, not rows"),
        pytest.param({"model": "m3", "pin": 0}, id="where the name ends"),
    ],
)
def test_another_question_has_other_keys(other: dict[str, Any]) -> None:
    assert not set(keys(**BASE)) & set(keys(**{**BASE, **other}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(texts(b"ab", b"c"), texts(b"a", b"bc"), id="where texts end"),
        pytest.param(texts(b"ab", b""), texts(b"", b"ab"), id="an empty text"),
        pytest.param(texts(b"a\0", b"b"), texts(b"a", b"\0b"), id="zero bytes"),
        pytest.param(floats(0.0, 0), floats(-0.0, 0), id="the sign of zero"),
        pytest.param(floats(np.nan, 1), -floats(np.nan, 1), id="kinds of nan"),
        pytest.param(floats(1, 2), floats(2, 1), id="order"),
        pytest.param(floats(1, 2), floats(1, 2, 3), id="batch"),
        pytest.param(np.zeros((1, 4), np.int8), np.zeros((1, 2), np.int16), id="four zero bytes"),
        pytest.param(np.zeros((1, 4, 0)), np.zeros((1, 0, 4)), id="nothing, in two shapes"),
    ],
)
def test_a_whole_call_has_a_key_of_its_own(one: Any, other: Any) -> None:
    first, second = (keys({"x": array}, **WHOLE) for array in (one, other))
    assert len(first) == len(second) == 1
    assert first != second


def test_keys_rest_on_contents_only() -> None:
    wide = np.arange(8, dtype=np.float32).reshape(2, 4)
    strided = np.asfortranarray(wide)
    assert keys({"x": strided}) == keys({"x": wide.copy()})
    assert keys({"x": texts(b"e")}) == keys({"x": texts("e")})  # type: ignore[arg-type]
    assert keys({"x": X, "z": wide}) == keys({"z": wide, "x": X})


def test_parameters_of_the_request_are_part_of_the_question() -> None:
    demo = one()
    for said, called in [(b"", 1), (b"", 1), (b'{"scale": 2}', 2), (b'{"scale": 3}', 3)]:
        asked = Asked()
        demo.runner.start({"x": floats(1)}, 1, ["y"], demo.models, asked.take, said)
        assert asked.rows() == [2]
        assert len(demo.models.calls) == called


def test_an_input_that_is_absent_makes_another_question() -> None:
    """A quorum goes on without `b`: what came of that is not what comes with it."""
    gate = Gate()
    nodes = [
        node("a", {"x": "x"}, cache_s=0),
        node("b", {"x": "x"}, cache_s=0),
        node("sum", {"p": "a.y?", "q": "b.y?"}, quorum={"need": 1, "of": ["a", "b"]}),
    ]
    demo = kept(
        nodes, b=InTurn(gate, double), sum=lambda p=0, q=0: p + q,
    )  # fmt: skip
    assert demo.ask(1).rows() == [2]
    gate.open()
    demo.await_idle()
    with_both = demo.ask(1).rows()
    names = [sorted(call.inputs) for call in demo.models.of("sum")]
    assert with_both == ([4] if ["p", "q"] in names else [2])


def test_answers_of_other_content_cannot_be_reached() -> None:
    """The plan of a new version has other pins and digests: even one store for both would do."""
    store = Cache(KEPT_BYTES, Counters())
    models = []
    for pin, digest in [(1, "d"), (1, "e"), (2, "e"), (1, "d")]:
        entry = node("a", {"x": "x"}, model="m", cache_s=60.0)
        plan = data([entry], {"y": "a.y"}, pins={"m": pin}, digests={"m": digest}, cache_bytes=9)
        runner = Runner(Plan(plan))
        runner.cache = store
        asked, called = Asked(), Models(a=lambda x, pin=pin, d=digest: x * (pin * 100 + ord(d)))
        runner.start({"x": floats(1)}, 1, ["y"], called, asked.take)
        assert asked.rows() == [pin * 100 + ord(digest)]
        models.append(len(called.calls))
    assert models == [1, 1, 1, 0]


# What is kept.


def failing_once(kind: str) -> InTurn:
    return InTurn(fails("no", kind), double)


@pytest.mark.parametrize("kind", ["error", "unavailable", "timeout"])
def test_what_stands_in_for_a_failure_is_not_kept(kind: str) -> None:
    demo = one(failing_once(kind), on_error=7)
    assert [demo.ask(1).rows() for _ in range(3)] == [[7], [2], [2]]
    assert len(demo.models.calls) == 2


def test_an_error_is_not_kept() -> None:
    demo = one(failing_once("error"))
    assert str(demo.ask(1).error()) == "node `a`: no"
    assert [demo.ask(1).rows() for _ in range(2)] == [[2], [2]]


def test_an_answer_of_a_wrong_shape_is_not_kept() -> None:
    demo = one(InTurn(lambda x: x[:, 0], double))
    assert "has shape" in str(demo.ask(1).error())
    assert demo.ask(1).rows() == [2]


def test_an_answer_that_came_late_is_not_kept() -> None:
    gate = Gate(lambda x: x * 0)
    demo = one(InTurn(gate, double), timeout_ms=20, on_error=7)
    assert demo.ask(1).rows() == [7]
    gate.open()
    demo.await_late("a", 1)
    assert demo.ask(1).rows() == [2]


def test_the_answer_of_a_further_try_is_kept() -> None:
    demo = one(failing_once("unavailable"), retries=1)
    assert [demo.ask(1).rows() for _ in range(2)] == [[2], [2]]
    assert len(demo.models.calls) == 2


def test_an_answer_dies_by_its_age_however_often_it_is_read() -> None:
    demo, clock = one(cache_s=10.0), Clock(0.0)
    demo.runner.cache = Cache(KEPT_BYTES, demo.runner.counters, clock)
    for now, called in [(0, 1), (4, 1), (8, 1), (9.9, 1), (10, 2), (19.9, 2), (20, 3)]:
        clock.now = now
        assert demo.ask(1).rows() == [2]
        assert len(demo.models.calls) == called


def test_each_node_has_its_own_age() -> None:
    demo = kept([node("a", {"x": "x"}, cache_s=1.0), node("b", {"x": "a.y"}, cache_s=9.0)])
    clock = Clock(0.0)
    demo.runner.cache = Cache(KEPT_BYTES, demo.runner.counters, clock)
    demo.ask(1).rows()
    clock.now = 5
    assert demo.ask(1).rows() == [4]
    assert demo.models.called() == ["a", "b", "a"]


def test_what_a_model_does_with_its_arrays_later_changes_nothing() -> None:
    given: list[Any] = []

    def keeps(x: Any) -> Any:
        given.append(2 * x)
        return given[-1]

    demo = one(keeps)
    demo.ask(1).wait()
    given[0][:] = 99
    assert demo.ask(1).rows() == [2]


def test_nobody_can_change_what_is_kept() -> None:
    demo = one()
    demo.ask(1).wait()
    found = demo.ask(1).outputs()["y"]
    with pytest.raises(ValueError, match="read-only"):
        found[:] = 99
    assert demo.ask(1).rows() == [2]


@pytest.mark.parametrize("keys", [{"when": above("x", 1)}, {"on_error": -1.0}, {}])
def test_what_is_found_goes_through_policies_as_what_is_called(keys: dict[str, Any]) -> None:
    read = node("read", {"all": "x", "o": "a.y?"}, cache_s=0)
    nodes = [node("a", {"x": "x"}, **keys), read]
    seen: list[Any] = []

    def look(all: Any, o: Any = None) -> Any:
        seen.append(None if o is None else flat(o))
        return all if o is None else all * 0 + o

    demo = kept(nodes, read=look)
    rows = [demo.ask(0, 2, 3).rows() for _ in range(3)]
    assert rows[0] == rows[1] == rows[2]
    assert len(demo.models.of("a")) == 1


# How much is kept.


def test_no_more_bytes_are_kept_than_it_may_and_the_oldest_use_goes_first() -> None:
    demo = one()
    cache = demo.runner.cache = Cache(4000, demo.runner.counters)
    for x in range(100):
        demo.ask(x).wait()
        demo.ask(0).wait()
        assert cache.used_bytes <= 4000
    assert 2 <= len(cache) <= 4000 // 512
    assert rows_asked(demo).count([0]) == 1
    assert rows_asked(demo)[-1] == [99]
    demo.ask(1).wait()
    assert rows_asked(demo).count([1]) == 2


def test_an_answer_larger_than_all_room_is_given_and_not_kept() -> None:
    demo = kept([node("a", {"x": "x"}, outputs=[tensor("y", dims=[500])])],
                a=lambda x: np.zeros((1, 500), np.float32))  # fmt: skip
    cache = demo.runner.cache = Cache(1500, demo.runner.counters)
    assert len(demo.ask(1).rows()) == len(demo.ask(1).rows()) == 500
    assert (len(cache), cache.used_bytes, len(demo.models.calls)) == (0, 0, 2)


def test_texts_count_with_their_length() -> None:
    cache = Cache(KEPT_BYTES, Counters())
    demo = kept([node("a", {"x": "x"}, outputs=[tensor("y", "string")])],
                a=lambda x: texts(b"a" * 10_000))  # fmt: skip
    demo.runner.cache = cache
    demo.ask(1).wait()
    assert 10_000 < cache.used_bytes < 11_000


# Calls under way.


def test_who_asks_the_same_at_the_same_time_waits_for_one_call() -> None:
    gate = Gate()
    demo = kept([node("a", {"x": "x"})], a=gate, provenance=True)
    first = demo.ask(1)
    gate.await_calls()
    others = [demo.ask(1), demo.ask(1, 1)]
    gate.open()
    assert [asked.rows() for asked in (first, *others)] == [[2], [2], [2, 2]]
    assert outcomes(others[1]) == [{"a": "cached"}] * 2
    assert len(demo.models.calls) == 1


def test_who_waited_for_a_call_that_fails_calls_itself() -> None:
    gate = Gate(fails())
    demo = one(InTurn(gate, double))
    first = demo.ask(1)
    gate.await_calls()
    others = [demo.ask(1), demo.ask(1)]
    gate.open()
    assert str(first.error()) == "node `a`: no"
    assert [asked.rows() for asked in others] == [[2], [2]]
    assert demo.ask(1).rows() == [2]
    assert len(demo.models.calls) == 3


def test_who_waited_for_a_call_that_was_given_up_calls_itself() -> None:
    gate = Gate()
    demo = one(InTurn(gate, double), timeout_ms=150)
    first = demo.ask(1)
    gate.await_calls()
    assert first.error().kind == "timeout"
    assert demo.ask(1).rows() == [2]
    gate.open()
    demo.await_idle()


def test_who_waits_has_its_own_time() -> None:
    """Two nodes call one model; the second has less patience than the call of the first."""
    gate = Gate()
    nodes = [node("a", {"x": "x"}, model="m"), node("b", {"x": "x"}, model="m", on_error=7)]
    demo = kept([nodes[0], {**nodes[1], "timeout_ms": 20}], {"p": "a.y", "q": "b.y"}, a=gate)
    asked = demo.ask(1, wanted=["p"])
    gate.await_calls()
    assert demo.ask(1, wanted=["q"]).rows("q") == [7]
    gate.open()
    assert asked.rows("p") == [2]
    demo.await_idle()


# A graph: only what lies behind a change runs.

#     l1   l2   l3
#       \ /     |
#        m      |
#          \   /
#           n -- top
SIX = [
    node("l1", {"x": "x"}),
    node("l2", {"x": "y"}),
    node("l3", {"x": "z"}),
    node("m", {"x": "l1.y", "p": "l2.y"}),
    node("n", {"x": "m.y", "p": "l3.y"}),
    node("top", {"x": "n.y"}),
]
LEAVES = [tensor("x"), tensor("y"), tensor("z")]
SUMS: dict[str, Callable[..., Any]] = {
    "l1": lambda x: x + 1, "l2": lambda x: +abs(x), "l3": lambda x: 3 * x,
    "m": lambda x, p: x * 10 + p, "n": lambda x, p: x + p, "top": lambda x: -x,
}  # fmt: skip


def six(**more: Any) -> Pipeline:
    return kept(SIX, {"y": "top.y", "mid": "m.y"}, inputs=LEAVES, **SUMS, **more)


def expected(x: float, y: float, z: float) -> float:
    return -((x + 1) * 10 + abs(y) + 3 * z)


@pytest.mark.parametrize(
    ("changed", "ran"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"x": 9}, ["l1", "m", "n", "top"], id="a leaf"),
        pytest.param({"z": 9}, ["l3", "n", "top"], id="a leaf nearer to the end"),
        pytest.param({"y": -2}, ["l2"], id="a leaf whose answer stays: all behind it is found"),
        pytest.param({"x": 9, "z": 9}, ["l1", "l3", "m", "n", "top"], id="two leaves"),
    ],
)
def test_only_what_lies_behind_a_change_runs(changed: dict[str, float], ran: list[str]) -> None:
    demo = six()
    before = {"x": 1.0, "y": 2.0, "z": 3.0}
    for given in (before, {**before, **changed}):
        demo.models.calls.clear()
        asked = demo.ask(**{name: floats(value) for name, value in given.items()})
        assert asked.rows("y") == [expected(**given)]
    assert sorted(demo.models.called()) == ran


def test_random_questions_are_answered_as_without_a_cache() -> None:
    """Batches, repeated rows, little room, calls that fail: never a wrong answer."""
    chance = random.Random(7)
    flaky = {"l2": InTurn(*[fails() if i % 5 == 0 else SUMS["l2"] for i in range(2000)])}
    nodes = [{**e, **({"on_error": True, "outputs": [tensor("y", default=-1.0)]}
              if e["name"] == "l2" else {})} for e in SIX]  # fmt: skip
    demo = kept(nodes, {"y": "top.y", "l": "l2.y"}, inputs=LEAVES, **{**SUMS, **flaky})
    demo.runner.cache = Cache(20_000, demo.runner.counters)

    def ask(seed: int) -> None:
        own = random.Random(seed)
        size = own.randint(1, 5)
        given = {name: floats(*(own.randint(-2, 2) for _ in range(size))) for name in "xyz"}
        answer = demo.ask(**given)
        for row, (y, l2) in enumerate(zip(answer.rows("y"), answer.rows("l"), strict=True)):
            x, p, z = (float(given[name][row, 0]) for name in "xyz")
            assert l2 in (abs(p), -1)
            assert y == -((x + 1) * 10 + l2 + 3 * z)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, [chance.randrange(10**6) for _ in range(800)]))
    demo.await_idle()
    assert demo.runner.cache.used_bytes <= 20_000
    assert count(demo, "top")[0] > 500
