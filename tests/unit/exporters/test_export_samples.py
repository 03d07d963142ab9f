"""Inputs that models are tried with."""

from dataclasses import dataclass

import numpy as np
import pytest

from mmctl.errors import InputError
from mmctl.exporters.samples import Drawn, Example, draw_example


@dataclass
class Input:
    """As ONNX Runtime describes one."""

    name: str
    type: str
    shape: list[int | str | None]


def drawn(*inputs: Input, batched: bool = True, **how: Drawn) -> Example:
    return draw_example(inputs, {i.name: how.get(i.name, Drawn()) for i in inputs}, batched=batched)


def test_equal_signatures_draw_equal_inputs() -> None:
    x = Input("x", "tensor(float)", ["N", 3])
    assert np.array_equal(drawn(x).arrays["x"], drawn(x).arrays["x"])
    assert drawn(x).arrays["x"].dtype == np.float32
    assert drawn(x).rows_differ


def test_integers_are_valid_as_ids_and_as_masks() -> None:
    ids = drawn(Input("ids", "tensor(int64)", ["N", "seq"])).arrays["ids"]
    assert ids.shape == (3, 16)
    assert set(np.unique(ids)) == {0, 1}


def test_the_user_says_which_numbers_and_shapes() -> None:
    x = Input("x", "tensor(int32)", ["N", "seq"])
    ids = drawn(x, x=Drawn(shape=(5,), low=1000, high=1010)).arrays["x"]
    assert ids.shape == (3, 5)
    assert ids.min() >= 1000
    assert ids.max() < 1010


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \[5\] does not fit input `x`, which is \[-1, 3\]"):
        drawn(Input("x", "tensor(float)", ["N", "a", 3]), x=Drawn(shape=(5,)))


@pytest.mark.parametrize(
    ("kind", "values"), [("bool", {False, True}), ("string", {"alpha", "beta", "gamma delta", ""})]
)
def test_other_types_have_values_of_their_own(kind: str, values: set[object]) -> None:
    x = drawn(Input("x", f"tensor({kind})", ["N", 40])).arrays["x"]
    assert set(x.ravel().tolist()) == values


def test_without_a_batch_axis_the_first_axis_is_like_others() -> None:
    example = drawn(Input("x", "tensor(float)", ["n", 3]), batched=False)
    assert example.arrays["x"].shape == (16, 3)
    assert example.sizes == {"n": 16}


def test_types_that_triton_cannot_serve_are_refused() -> None:
    with pytest.raises(InputError, match=r"`p` is a seq\(map\(int64,tensor\(float\)\)\)"):
        drawn(Input("p", "seq(map(int64,tensor(float)))", []))


def test_axes_of_one_name_change_together() -> None:
    ids = np.arange(8).reshape(2, 4)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    example = Example({"ids": ids, "mask": mask}, {"ids": {1: "seq"}, "mask": {1: "seq"}})
    longer = example.resized(2)
    assert longer is not None
    assert longer.sizes == {"seq": 8}
    assert longer.arrays["mask"][1].tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
    shorter = example.resized(0.5)
    assert shorter is not None
    assert shorter.arrays["ids"].tolist() == [[0, 1], [4, 5]]


def test_without_free_axes_there_are_no_other_sizes() -> None:
    assert Example({"x": np.zeros((2, 4))}, {}).resized(2) is None


def test_more_rows_than_there_are_repeat_in_turn() -> None:
    assert Example({"x": np.array([[1], [2]])}, {}).rows(3)["x"].tolist() == [[1], [2], [1]]


def test_equal_rows_are_noticed() -> None:
    assert not Example({"x": np.ones((2, 4))}, {}).rows_differ
