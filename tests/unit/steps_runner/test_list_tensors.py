"""List tensors in steps: a list over rows of lists of items; one packed value a row outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mmctl.compiler.shipped.item_lists import objects, pack, unpack
from mmctl.compiler.shipped.step_model import StepError, Steps

CROPS = {"name": "crops", "dtype": "uint8", "dims": [2, -1], "items": True}
WORDS = {"name": "words", "dtype": "string", "dims": [], "items": True}
FILES = {"name": "files", "dtype": "bytes", "dims": [-1], "items": True}
SIZE = {"name": "n", "dtype": "int32", "dims": []}


def step(function: Callable[..., Any], takes: Any, gives: Any, **changed: Any) -> Steps:
    entry = {
        "step": "cut", "module": "steps", "function": "f", "options": None, "rows": False,
        "inputs": [{**takes, "from": ["", takes["name"]]}], "gives": [gives], **changed,
    }  # fmt: skip
    shown = [{"name": gives["name"], "from": ["cut", gives["name"]]}]
    plan = {"inputs": [takes], "steps": [entry], "outputs": shown, "batched": True, "join": True}
    return Steps(plan, [function])


def sizes(*rows: int) -> Any:
    return np.array(rows, np.int32)[:, None]


def packed(tensor: Any, *rows: list[Any]) -> Any:
    """As Triton sends it."""
    blobs = [pack(items, tensor["dtype"], tensor["dims"]) for items in rows]
    return objects(blobs, (len(blobs), 1))


def sent(steps: Steps, outcome: Any) -> list[list[Any]]:
    """What leaves, unpacked again."""
    assert not isinstance(outcome, StepError), outcome
    [(name, _, tensor)] = steps.outputs
    array = tensor.sent(outcome[name], batched=True)
    assert array.shape == (len(array), 1)
    return [unpack(blob, tensor.word, tensor.dims) for blob in array[:, 0]]


def crop(width: int) -> Any:
    return np.full((2, width), width, np.uint8)


def cut(n: Any) -> dict[str, Any]:
    """As many crops as the number says, each wider than the one before."""
    return {"crops": [[crop(width) for width in range(1, size + 1)] for size in n]}


def test_rows_have_as_many_items_as_they_like() -> None:
    steps = step(cut, SIZE, CROPS)
    first, second = steps.run([{"n": sizes(0, 2)}, {"n": sizes(1)}])
    assert [[item.shape for item in row] for row in sent(steps, first)] == [[], [(2, 1), (2, 2)]]
    assert [[item.tolist() for item in row] for row in sent(steps, second)] == [[[[1], [1]]]]


def test_a_function_gets_a_list_for_each_row_and_requests_are_joined() -> None:
    calls = []

    def count(crops: Any) -> dict[str, Any]:
        calls.append([[item.shape for item in row] for row in crops])
        return {"n": [sum(int(item.sum()) for item in row) for row in crops]}

    steps = step(count, CROPS, SIZE)
    requests = [{"crops": packed(CROPS, [crop(1)], [])}, {"crops": packed(CROPS, [crop(3)] * 2)}]
    assert [outcome["n"].tolist() for outcome in steps.run(requests)] == [[2, 0], [36]]  # type: ignore[index]
    assert calls == [[[(2, 1)], [], [(2, 3), (2, 3)]]]


def test_items_of_text_are_str() -> None:
    def shout(words: Any) -> dict[str, Any]:
        assert all(type(word) is str for row in words for word in row)
        return {"words": [[f"{word}!" for word in row] for row in words]}

    steps = step(shout, WORDS, WORDS)
    [outcome] = steps.run([{"words": packed(WORDS, ["é", ""], [])}])
    assert sent(steps, outcome) == [["é!".encode(), b"!"], []]


def test_items_of_several_texts_are_arrays() -> None:
    steps = step(lambda files: {"files": files}, FILES, FILES)
    items = [objects([b"a\0", b"\xff"], (2,)), objects([], (0,))]
    [outcome] = steps.run([{"files": packed(FILES, items)}])
    assert [[item.tolist() for item in row] for row in sent(steps, outcome)] == [
        [[b"a\0", b"\xff"], []]
    ]


def test_numbers_as_numpy_gives_them_are_taken() -> None:
    scores = {"name": "scores", "dtype": "fp32", "dims": [], "items": True}
    steps = step(lambda n: {"scores": [np.arange(k) / 2 for k in n]}, SIZE, scores)
    [outcome] = steps.run([{"n": sizes(3, 0)}])
    assert sent(steps, outcome) == [[0, 0.5, 1], []]


def test_a_function_of_one_row_takes_and_gives_one_list() -> None:
    def widest(crops: Any) -> dict[str, Any]:
        return {"crops": crops[-1:]}

    steps = step(widest, CROPS, CROPS, rows=True)
    [outcome] = steps.run([{"crops": packed(CROPS, [crop(1), crop(4)], [])}])
    assert [[item.shape for item in row] for row in sent(steps, outcome)] == [[(2, 4)], []]


@pytest.mark.parametrize(
    ("returned", "gives", "problem"),
    [
        pytest.param([[]], CROPS, "output `crops` is 1 rows, expected a list of items for each "
                     "row (uint8[*, 2, -1] for a batch of 2)", id="another batch"),
        pytest.param(None, CROPS, "output `crops` is NoneType, expected a list of items for each "
                     "row (uint8[*, 2, -1] for a batch of 2)", id="no list"),
        pytest.param([[], "ab"], WORDS, "output `words`: row 1 is str, expected a list of items",
                     id="a text for a list of text"),
        pytest.param([[], [crop(2).T[:1]]], CROPS, "output `crops`: an item of row 1 has shape "
                     "[1, 2], declared uint8[*, 2, -1]", id="another shape"),
        pytest.param([[crop(2) / 2], []], CROPS,
                     "output `crops` is float64, declared uint8[*, 2, -1]", id="another dtype"),
        pytest.param([[b"a"], []], WORDS, "output `words` holds bytes, declared string[*]",
                     id="bytes for text"),
    ],
)  # fmt: skip
def test_a_wrong_list_is_named(returned: Any, gives: Any, problem: str) -> None:
    [outcome] = step(lambda n: {gives["name"]: returned}, SIZE, gives).run([{"n": sizes(1, 2)}])
    assert isinstance(outcome, StepError)
    assert str(outcome) == problem


@pytest.mark.parametrize(
    ("blob", "takes", "problem"),
    [
        pytest.param(b"junk", CROPS, "`crops`: a list of 4 bytes is cut short", id="junk"),
        pytest.param(pack([b"\xff"], "bytes", []), WORDS, "`words` is not UTF-8", id="no text"),
    ],
)
def test_a_broken_list_fails_only_its_own_request(blob: bytes, takes: Any, problem: str) -> None:
    steps = step(lambda **lists: {"n": [0] * len(lists[takes["name"]])}, takes, SIZE)
    good, bad = steps.run(
        [{takes["name"]: packed(takes, [])}, {takes["name"]: objects([blob], (1, 1))}]
    )
    assert not isinstance(good, StepError)
    assert str(bad).startswith(problem)


def test_items_are_not_the_functions_own() -> None:
    def spoil(crops: Any) -> dict[str, Any]:
        crops[0][0][:] = 0
        return {"crops": crops}

    [outcome] = step(spoil, CROPS, CROPS).run([{"crops": packed(CROPS, [crop(1)])}])
    assert str(outcome).startswith("ValueError: assignment destination is read-only")
