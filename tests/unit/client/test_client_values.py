"""What the client casts, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.client.values import to_array, with_batch
from mmctl.errors import InputError
from mmctl.tensors import DType, TensorSpec, parse_type

TEXT = "你好, café"
WHOLE = [d for d in DType if d.name.startswith(("INT", "UINT"))]
FLOATS = [DType.FP16, DType.FP32, DType.FP64]


def spec(text: str) -> TensorSpec:
    return TensorSpec("x", parse_type(text))


def cast(value: object, kind: str) -> object:
    return to_array(value, spec(kind), "input `x`").tolist()


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        pytest.param([1, 2], "fp32", [1.0, 2.0], id="whole numbers become floats"),
        pytest.param(np.array([0.5]), "fp32", [0.5], id="numpy's float64 becomes fp32"),
        pytest.param([0.1], "fp16", [0.0999755859375], id="a float is rounded to the nearest"),
        pytest.param([2.0, -3.0], "int8", [2, -3], id="floats that are whole become whole numbers"),
        pytest.param(np.array([7], np.int64), "uint8", [7], id="a wide type with small values"),
        pytest.param([True, False], "uint8", [1, 0], id="booleans are 1 and 0"),
        pytest.param([1, 0], "bool", [True, False], id="1 and 0 are booleans"),
        pytest.param([2**63, 1], "uint64", [2**63, 1], id="numpy would make floats of these"),
        pytest.param([2**53 + 1, 1.0], "int64", [2**53 + 1, 1], id="a float beside a large number"),
        pytest.param([2**25], "fp32", [float(2**25)], id="a large number that fp32 has exactly"),
        pytest.param([math.inf], "fp16", [math.inf], id="infinity stays"),
        pytest.param(np.array([1, 2], ">i4"), "int32", [1, 2], id="the other byte order"),
        pytest.param(np.array([1, 2], object), "fp32", [1.0, 2.0], id="an array of objects"),
        pytest.param([np.float32(2), 3], "int32", [2, 3], id="numpy's scalars in a list"),
        pytest.param(5, "int32", 5, id="a scalar"),
        pytest.param([], "int32", [], id="nothing"),
        pytest.param(TEXT, "string", TEXT, id="a text"),
        pytest.param([TEXT], "bytes", [TEXT.encode()], id="a text for bytes is UTF-8"),
        pytest.param(TEXT.encode(), "string", TEXT, id="UTF-8 for a text"),
        pytest.param(b"\xff\x00", "bytes", b"\xff\x00", id="bytes, with a zero at the end"),
        pytest.param(bytearray(b"ab"), "bytes", b"ab", id="a bytearray is one value"),
        pytest.param(np.array([TEXT, "b"]), "string", [TEXT, "b"], id="numpy's own strings"),
        pytest.param(np.array([b"a"]), "bytes", [b"a"], id="numpy's own bytes"),
    ],
)
def test_casts(value: object, kind: str, expected: object) -> None:
    assert cast(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        pytest.param([300], "uint8", "`300` does not fit uint8, which holds 0 to 255", id="300"),
        pytest.param([-1], "uint32", "`-1` does not fit uint32", id="a sign that would be lost"),
        pytest.param([2**64], "int64", "does not fit int64", id="beyond 64 bits"),
        pytest.param([1.5], "int32", "1.5 is not a whole number", id="a fraction"),
        pytest.param([math.nan], "int32", "nan is not a whole number", id="NaN"),
        pytest.param(np.array([math.inf]), "int64", "inf is not a whole number", id="infinity"),
        pytest.param(np.array([1e30]), "int64", "does not fit int64", id="a float out of range"),
        pytest.param(np.array([300], np.int16), "uint8", "`300` does not fit", id="a numpy array"),
        pytest.param([2], "bool", "`2` does not fit bool", id="2 as a boolean"),
        pytest.param([1e39], "fp32", "`1e+39` does not fit fp32", id="overflow to infinity"),
        pytest.param([70000], "fp16", "`70000` does not fit fp16", id="overflow of a whole number"),
        pytest.param([10**400], "fp64", "does not fit fp64", id="a number beyond every float"),
        pytest.param([2**24 + 1], "fp32", "16777217 is not exact in fp32", id="inexact in fp32"),
        pytest.param("5", "int32", "`'5'` is text, and the tensor is int32", id="text"),
        pytest.param([1, "a"], "fp32", "is text", id="text among numbers"),
        pytest.param(None, "fp32", "`None` is not a number", id="None"),
        pytest.param({"a": 1}, "fp32", "is not a number", id="a mapping"),
        pytest.param([1 + 2j], "fp32", "is not a number", id="a complex number"),
        pytest.param([[1], [1, 2]], "fp32", "different lengths", id="lists of different length"),
        pytest.param([["a"], ["a", "b"]], "string", "different lengths", id="texts likewise"),
        pytest.param([5], "string", "`5` is not text", id="a number for text"),
        pytest.param(b"\xff\xd8", "string", "not UTF-8 text", id="a photo for text"),
        pytest.param("\udcff", "bytes", "not valid Unicode", id="half a character"),
    ],
)
def test_refuses(value: object, kind: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^input `x`: ") as caught:
        to_array(value, spec(kind), "input `x`")
    assert message in str(caught.value)
    assert caught.value.hint


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.integers(-300, 300), st.floats(), st.booleans()
)


@given(st.lists(NUMBERS, max_size=4), st.sampled_from(WHOLE))
def test_whole_numbers_arrive_exactly_or_not_at_all(values: list[float], dtype: DType) -> None:
    try:
        arrived = cast(values, dtype)
    except InputError:
        low, high = np.iinfo(dtype.value).min, np.iinfo(dtype.value).max
        assert any(not math.isfinite(v) or v != int(v) or not low <= v <= high for v in values)
    else:
        assert arrived == values


@given(st.lists(NUMBERS, max_size=4), st.sampled_from(FLOATS))
def test_floats_arrive_as_the_nearest_and_whole_numbers_exactly(
    values: list[float], dtype: DType
) -> None:
    try:
        arrived = cast(values, dtype)
    except InputError:
        largest = float(np.finfo(dtype.numpy.name).max)
        assert any(isinstance(v, int) or (math.isfinite(v) and abs(v) > largest) for v in values)
        return
    with np.errstate(over="ignore"):
        nearest = [np.array(v, dtype.numpy).item() if isinstance(v, float) else v for v in values]
    np.testing.assert_equal(arrived, nearest)


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.integers(-(2**63), 0), min_size=1, max_size=3),
    st.sampled_from([np.int64, np.uint64, np.float64, np.float32, np.int8]),
    st.sampled_from([*WHOLE, *FLOATS]),
)
def test_arrays_follow_the_same_law_as_lists(
    values: list[int], kind: type[np.generic], dtype: DType
) -> None:
    with np.errstate(all="ignore"):
        array = np.array(values, dtype=object).astype(np.float64).astype(kind)
    try:
        arrived = to_array(array, spec(dtype), "x")
    except InputError:
        return
    if dtype in FLOATS and array.dtype.kind == "f":
        assert np.isfinite(arrived).all()
    else:
        assert arrived.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("shape", "kind", "max_batch", "wanted"),
    [
        pytest.param((), "fp32", 4, (1, 1), id="a scalar is one row"),
        pytest.param((3,), "fp32", 4, (3, 1), id="a list of a bare type is as many rows"),
        pytest.param((3, 1), "fp32", 4, (3, 1), id="the shape Triton wants"),
        pytest.param((4,), "fp32[4]", 4, (1, 4), id="a row gets its batch axis"),
        pytest.param((2, 4), "fp32[4]", 4, (2, 4), id="rows stay rows"),
        pytest.param((5, 7, 3), "uint8[-1,-1,3]", 4, (1, 5, 7, 3), id="free axes"),
        pytest.param((), "fp32", 0, (1,), id="a scalar for a model that does not batch"),
        pytest.param((2, 4), "fp32[-1,4]", 0, (2, 4), id="no axis is added to such a model"),
    ],
)
def test_a_missing_batch_axis_is_added(
    shape: tuple[int, ...], kind: str, max_batch: int, wanted: tuple[int, ...]
) -> None:
    array = np.zeros(shape, np.float32)
    assert with_batch(array, spec(kind), max_batch, "x").shape == wanted


@pytest.mark.parametrize(
    ("shape", "kind", "max_batch", "message"),
    [
        pytest.param((3,), "fp32[4]", 4, "shape [3] given, [rows,4] expected", id="length"),
        pytest.param((), "fp32[4]", 4, "shape [] given, [rows,4] expected", id="a scalar"),
        pytest.param((1, 1, 4), "fp32[4]", 4, "shape [1,1,4] given", id="one axis too many"),
        pytest.param((2, 3), "fp32", 4, "shape [2,3] given, [rows,1] expected", id="a bare type"),
        pytest.param((1, 4), "fp32[4]", 0, "shape [1,4] given, [4] expected", id="no batching"),
        pytest.param((2,), "fp32", 0, "shape [2] given, [1] expected", id="two values for one"),
    ],
)
def test_a_wrong_shape_is_told_with_the_right_one(
    shape: tuple[int, ...], kind: str, max_batch: int, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        with_batch(np.zeros(shape, np.float32), spec(kind), max_batch, "input `x`")
    assert str(caught.value).startswith(f"input `x`: {message}")
