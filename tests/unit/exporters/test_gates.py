"""The gates, on models that are plain functions of arrays."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mmctl.errors import InputError, Refused
from mmctl.exporters.gates import difference, prove, scale_of
from mmctl.exporters.samples import Example
from mmctl.exporters.traced import ModelFails
from mmctl.tensors import Array

Function = Callable[[Array], Array]
NOISE = np.random.default_rng(1)


def runner(function: Function) -> Callable[[Mapping[str, Array]], Sequence[Array]]:
    def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
        try:
            return [np.asarray(function(inputs["x"]))]
        except ValueError as error:
            raise ModelFails(str(error)) from error

    return run


def example(*shape: int, axes: Mapping[int, str] | None = None) -> Example:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return Example({"x": x}, {"x": axes or {}})


def proved(
    served: Function,
    source: Function | None = None,
    *,
    on: Example | None = None,
    batched: bool = True,
    tolerance: float = 1e-5,
) -> Sequence[Mapping[str, object]]:
    return prove(
        runner(served),
        runner(source or served),
        ["y"],
        on or example(2, 4),
        batched=batched,
        tolerance=tolerance,
    )


def only_batches_of(count: int) -> Function:
    def function(x: Array) -> Array:
        if len(x) != count:
            raise ValueError(f"expected {count} rows")
        return x

    return function


def test_a_model_that_keeps_its_promises_leaves_evidence() -> None:
    parity, law = proved(lambda x: x * 2)
    assert parity == {
        "gate": "parity",
        "batches": [1, 2, 3],
        "max_difference": 0.0,
        "limit": 1e-5,
    }
    assert law["gate"] == "batch law"
    assert law["max_difference"] == 0.0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        pytest.param(
            lambda x: x - x.mean(axis=0),
            r"rows change with their batch: `y` differs by \d\S* of its scale between batches of 1",
            id="rows that see the mean of their batch",
        ),
        pytest.param(
            lambda x: np.cumsum(x, axis=0),
            "rows change with their batch",
            id="rows that see those before them",
        ),
        pytest.param(
            lambda x: x.reshape(2, -1),
            r"output `y` has shape \[2, 2\] for a batch of 1: its first axis is not the batch",
            id="a view that takes two rows for granted",
        ),
        pytest.param(
            lambda x: x[x > 0],
            r"output `y` has shape \[\d+\] for a batch of 1",
            id="as many rows as there are positive numbers",
        ),
        pytest.param(
            lambda x: x.sum(), r"output `y` has shape \[\] for a batch of 1", id="one number"
        ),
        pytest.param(
            only_batches_of(1),
            "the source fails with a batch of 2: expected 1 rows",
            id="a batch of one in the graph",
        ),
        pytest.param(
            only_batches_of(2),
            "the source fails with a batch of 1: expected 2 rows",
            id="a batch of two in the graph",
        ),
    ],
)
def test_what_breaks_the_batch_law_is_refused_with_the_measurement(
    function: Function, said: str
) -> None:
    with pytest.raises(Refused, match=said) as caught:
        proved(function)
    assert "batching: none" in str(caught.value.hint)


@pytest.mark.parametrize("function", [lambda x: x - x.mean(axis=0), lambda x: x.reshape(2, -1)])
def test_without_a_batch_axis_there_is_no_batch_law(function: Function) -> None:
    assert [gate["gate"] for gate in proved(function, batched=False)] == ["parity"]


def test_an_export_that_computes_something_else_is_refused_with_the_difference() -> None:
    with pytest.raises(
        Refused, match=r"a batch of 1 the exported `y` differs from its source by 0\.1 of its scale"
    ):
        proved(
            lambda x: x * 1.1,
            lambda x: np.clip(x, -1, 1),
            on=Example({"x": np.array([[1.0], [-1.0]])}, {}),
        )


def test_the_tolerance_is_the_users_to_widen() -> None:
    def almost(x: Array) -> Array:
        return x * 1.00003

    with pytest.raises(Refused, match="the limit is 1e-05"):
        proved(almost, lambda x: x)
    parity = proved(almost, lambda x: x, tolerance=1e-4)[0]
    assert parity["max_difference"] == 3e-5


def test_small_rows_beside_large_ones_are_measured_by_the_large() -> None:
    rows = Example({"x": np.array([[1e-6], [1.0]])}, {})
    parity = proved(lambda x: x + 1e-7, lambda x: x, on=rows)[0]
    assert parity["max_difference"] == 1e-7


def test_a_random_model_is_refused_before_it_is_compared() -> None:
    with pytest.raises(Refused, match=r"the source is not repeatable: `y` differs by \d"):
        proved(lambda x: x + NOISE.standard_normal(x.shape))


def test_example_inputs_that_nobody_can_run_are_wrong_input() -> None:
    with pytest.raises(InputError, match="cannot run its own example inputs: expected 7 rows"):
        proved(only_batches_of(7))


def test_a_free_axis_is_tried_at_other_lengths() -> None:
    on = example(2, 8, axes={1: "seq"})
    parity = proved(lambda x: x.sum(axis=1, keepdims=True), on=on)[0]
    assert parity["sizes"] == [{"seq": 8}, {"seq": 4}, {"seq": 16}]
    with pytest.raises(Refused, match=r"with sizes \{'seq': 4\} the exported `y` differs"):
        proved(lambda x: x[:, :1] + (x.shape[1] == 4), lambda x: x[:, :1], on=on)


def test_lengths_that_the_source_refuses_prove_nothing() -> None:
    def multiples_of_8(x: Array) -> Array:
        if x.shape[1] % 8:
            raise ValueError("not a multiple of 8")
        return x[:, :1]

    on = example(2, 8, axes={1: "width"})
    assert proved(multiples_of_8, on=on)[0]["sizes"] == [{"width": 8}, {"width": 16}]
    with pytest.raises(Refused, match=r"the exported file fails with sizes \{'width': 4\}"):
        proved(multiples_of_8, lambda x: x[:, :1], on=on)


def test_classes_and_words_must_be_equal() -> None:
    assert proved(lambda x: x.argmax(axis=1))[1]["max_difference"] == 0
    with pytest.raises(Refused, match=r"differs from its source by 100% of its values"):
        proved(lambda x: x.argmax(axis=1) + 1, lambda x: x.argmax(axis=1))
    assert proved(lambda x: np.where(x > 0, "yes", "no").astype(object))


def test_nan_equals_nan_and_nothing_else() -> None:
    a = np.array([np.nan, np.inf, 1.0])
    assert difference(a, a, 1.0) == 0
    assert difference(a, np.array([0.0, np.inf, 1.0]), 1.0) == np.inf
    assert difference(a, np.array([np.nan, -np.inf, 1.0]), 1.0) == np.inf


def test_a_saturated_output_is_not_measured_by_its_own_dust() -> None:
    assert scale_of(np.array([1e-9, -1e-12])) == 0.01
    assert scale_of(np.array([np.inf, -40.0])) == 40


@given(arrays(np.float32, (3, 2), elements=st.floats(-1e6, 1e6, width=32)))
def test_a_difference_grows_with_the_change_and_shrinks_with_the_scale(values: Array) -> None:
    changed = values.astype(np.float64) + 0.5
    scale = scale_of(values)
    assert difference(changed, values, scale) == pytest.approx(0.5 / scale)
    assert difference(values, values, scale) == 0
