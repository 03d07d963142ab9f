"""The bytes of Triton's protocol."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mmctl.tensors import DType
from mmctl.wire import decode, encode, encoded_size

NUMERIC = [d for d in DType if not d.is_text and d is not DType.BF16]


@given(st.data(), st.sampled_from(NUMERIC))
def test_numbers_come_back_as_they_went(data: st.DataObject, dtype: DType) -> None:
    array = data.draw(arrays(dtype.numpy, array_shapes(min_dims=0, max_dims=3)))
    raw = encode(array)
    assert len(raw) == encoded_size(array)
    np.testing.assert_array_equal(decode(raw, dtype.wire, array.shape), array)


@given(st.lists(st.binary(max_size=9), max_size=6))
def test_bytes_come_back_as_they_went(texts: list[bytes]) -> None:
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    raw = encode(array)
    assert len(raw) == encoded_size(array)
    assert decode(raw, "BYTES", (len(texts),)).tolist() == texts


def test_text_travels_as_utf8_behind_its_length() -> None:
    assert encode(np.array([["é"]], dtype=object)) == b"\x02\x00\x00\x00\xc3\xa9"


def test_big_endian_arrays_travel_little_endian() -> None:
    assert encode(np.array([1], dtype=">i2")) == b"\x01\x00"


def test_a_view_travels_row_by_row() -> None:
    assert encode(np.array([[1, 2], [3, 4]], np.uint8).T) == b"\x01\x03\x02\x04"


@pytest.mark.parametrize(
    ("raw", "word", "shape"),
    [
        pytest.param(b"\x00\x00\x00", "FP32", (1,), id="too few bytes"),
        pytest.param(b"\x09\x00\x00\x00ab", "BYTES", (1,), id="a text cut short"),
        pytest.param(b"\x01\x00\x00\x00a", "BYTES", (2,), id="a text missing"),
        pytest.param(b"\x01\x00\x00\x00a", "BYTES", (0,), id="a text too many"),
    ],
)
def test_bytes_that_do_not_fit_the_shape_are_an_error(
    raw: bytes, word: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(raw, word, shape)
