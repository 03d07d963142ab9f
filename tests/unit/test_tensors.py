"""Tensor types as people write them, and which may flow into which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmctl.tensors import DType, TensorType, parse_type

types = st.builds(
    TensorType,
    st.sampled_from(DType),
    st.lists(st.one_of(st.just(-1), st.integers(1, 5000)), min_size=1, max_size=4).map(tuple),
    st.booleans(),
)


@given(types)
def test_what_is_printed_parses_back(tensor_type: TensorType) -> None:
    assert parse_type(str(tensor_type)) == tensor_type


def test_a_bare_dtype_is_one_value_per_row() -> None:
    assert parse_type("fp32") == TensorType(DType.FP32)
    assert parse_type("fp32").triton_dims == (1,)


@pytest.mark.parametrize(
    "text", ["float", "fp32[0]", "fp32[-2]", "fp32[3,*]", "fp32[", "fp32[a]", "FP32", "", "fp32[]]"]
)
def test_what_is_no_type_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        parse_type(text)


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        ("fp32[3]", "fp32[3]", True),
        ("fp32[-1]", "fp32[3]", True),
        ("fp32[4]", "fp32[3]", False),
        ("fp32[3,4]", "fp32[3]", False),
        ("fp32", "fp32[1]", True),
        ("fp16", "fp32", False),
        ("string", "bytes", True),
        ("string", "int32", False),
        ("fp32[*,3]", "fp32[3]", False),
    ],
)
def test_triton_never_casts(source: str, target: str, fits: bool) -> None:
    assert parse_type(source).feeds(parse_type(target)) is fits


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BF16])
def test_every_type_has_a_numpy_type(dtype: DType) -> None:
    assert dtype.numpy.kind in "biufO"
