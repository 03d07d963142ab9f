"""A list tensor between two models: one value of bytes a row, from which the same items come."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mmctl.compiler.shipped.item_lists import NUMPY, objects, pack, unpack

SIZES = st.integers(0, 4)


@st.composite
def numeric_lists(draw: st.DrawFn) -> tuple[list[Any], str, list[int]]:
    """Items that differ where dims are free, laid out in any order of memory."""
    word = draw(st.sampled_from(sorted(NUMPY)))
    dims = draw(st.lists(st.sampled_from([-1, 0, 1, 3]), max_size=3))
    items = []
    for _ in range(draw(SIZES)):
        shape = tuple(draw(SIZES) if dim == -1 else dim for dim in dims)
        item = draw(arrays.arrays(NUMPY[word], shape))
        items.append(np.asarray(item, order=draw(st.sampled_from("CF"))))
    return items, word, dims


@given(numeric_lists())
def test_arrays_come_back_as_they_were(case: tuple[list[Any], str, list[int]]) -> None:
    items, word, dims = case
    found = unpack(pack(items, word, dims), word, dims)
    assert [item.tobytes() for item in found] == [item.tobytes() for item in items]
    assert [item.shape for item in found] == [item.shape for item in items]
    assert all(item.dtype == NUMPY[word] and item.flags.aligned for item in found)


@given(st.lists(st.binary(max_size=9)))
def test_bytes_come_back_as_they_were(items: list[bytes]) -> None:
    assert unpack(pack(items, "bytes", []), "bytes", []) == items


@given(st.lists(st.text(max_size=9)))
def test_text_comes_back_as_utf8(items: list[str]) -> None:
    found = unpack(pack(items, "string", []), "string", [])
    assert found == [item.encode() for item in items]


@given(st.lists(st.lists(st.binary(max_size=3), max_size=4), max_size=4))
def test_items_of_several_texts_come_back_as_arrays(rows: list[list[bytes]]) -> None:
    items = [objects(row, (len(row),)) for row in rows]
    found = unpack(pack(items, "bytes", [-1]), "bytes", [-1])
    assert [item.tolist() for item in found] == rows


def test_arrays_are_views_that_cannot_be_written_to() -> None:
    [item] = unpack(pack([np.ones(3, np.float32)], "fp32", [3]), "fp32", [3])
    assert item.base is not None
    with pytest.raises(ValueError, match="read-only"):
        item[0] = 2


@pytest.mark.parametrize(
    ("item", "word", "dims", "problem"),
    [
        pytest.param(np.ones(2), "fp32", [2], "item 1 is float64, declared fp32[*,2]",
                     id="another dtype"),
        pytest.param(np.ones((2, 1), np.uint8), "uint8", [-1],
                     "item 1 has shape [2, 1], declared uint8[*,-1]", id="another rank"),
        pytest.param(np.ones((4, 9, 3), np.uint8), "uint8", [4, -1, 1],
                     "item 1 has shape [4, 9, 3], declared uint8[*,4,-1,1]", id="another size"),
        pytest.param(objects([b"a"], (1,)), "bytes", [],
                     "item 1 has shape [1], declared bytes[*]", id="an array for a text"),
        pytest.param(7, "string", [], "item 1 holds int, declared string", id="a number for text"),
    ],
)  # fmt: skip
def test_an_item_that_is_not_as_declared_is_named(
    item: Any, word: str, dims: list[int], problem: str
) -> None:
    good = np.zeros([2 if dim == -1 else dim for dim in dims], NUMPY.get(word, np.dtype(object)))
    first = b"" if word in ("string", "bytes") else good
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared
        pack([first, item], word, dims)
    assert str(raised.value) == problem


GOOD = pack([np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)], "fp32", [-1, 3])
TEXTS = pack(["one", "two"], "string", [])


@pytest.mark.parametrize("size", range(len(GOOD)))
def test_a_list_that_is_cut_short_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match=r"^a list "):
        unpack(GOOD[:size], "fp32", [-1, 3])


@pytest.mark.parametrize("size", range(len(TEXTS)))
def test_a_list_of_text_that_is_cut_short_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match=r"^a list "):
        unpack(TEXTS[:size], "string", [])


@pytest.mark.parametrize(
    ("blob", "word", "dims", "problem"),
    [
        pytest.param(GOOD + b"\0", "fp32", [-1, 3], "its header says", id="more than it says"),
        pytest.param(GOOD, "fp32", [-1, 4], "has shape", id="another size"),
        pytest.param(GOOD, "fp64", [-1, 3], "its header says", id="another dtype"),
        pytest.param(struct.pack("<q", 2**62), "int8", [], "cannot have", id="a wild count"),
        pytest.param(struct.pack("<q", -1), "int8", [], "cannot have", id="a negative count"),
        pytest.param(struct.pack("<2q", 1, -5), "int8", [-1], "has shape", id="a negative size"),
        pytest.param(struct.pack("<3q", 1, 2**61, 2**61), "int8", [-1, -1], "its header says",
                     id="wild sizes"),
        pytest.param(struct.pack("<3q", 2, -8, 8), "bytes", [], "negative length",
                     id="a negative length"),
    ],
)  # fmt: skip
def test_what_pack_did_not_make_is_an_error(
    blob: bytes, word: str, dims: list[int], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        unpack(blob, word, dims)


@given(st.binary(max_size=64), st.sampled_from(["int8", "fp32", "bytes"]))
def test_junk_is_an_error_or_a_list(blob: bytes, word: str) -> None:
    for dims in ([], [-1], [2, -1]):
        try:
            items = unpack(blob, word, dims)
        except ValueError:
            continue
        assert len(items) <= len(blob)
