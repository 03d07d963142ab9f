"""Values for requests, answers against declared outputs, and what makes two answers the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_repositories import Models, io, warm_up

from mmctl.client.samples import read_sample
from mmctl.errors import InputError
from mmctl.lint.repository import Target, read_repository
from mmctl.tensors import Array, Signature, TensorSpec, parse_type
from mmctl.trials.runcheck.likeness import find_change, row_of
from mmctl.trials.runcheck.model import Model, has_types, model_of, warm_ups_of
from mmctl.trials.runcheck.outputs import find_faults, missing
from mmctl.trials.runcheck.rows import Style, batch_sizes, made_up, made_up_row, own_values


def tensors(**types: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, parse_type(text)) for name, text in types.items())


def model(inputs: tuple[TensorSpec, ...], max_batch: int = 4) -> Model:
    return Model("m", Signature(inputs, tensors(y="fp32[4]"), max_batch))


@pytest.mark.parametrize(
    ("kind", "style", "low", "high"),
    [
        ("int64[64]", Style.PLAIN, 0, 3),
        ("uint8[64]", Style.SMALL, 0, 1),
        ("int32[64]", Style.ONES, 1, 1),
        ("fp32[64]", Style.SMALL, 0, 1),
        ("bool[64]", Style.PLAIN, 0, 1),
    ],
)
def test_made_up_numbers_are_small(kind: str, style: Style, low: int, high: int) -> None:
    (spec,) = tensors(x=kind)
    row = made_up_row(spec, (64,), 0, style)
    assert row.dtype == spec.type.dtype.numpy
    assert low <= row.min() <= row.max() <= high
    assert len(np.unique(row)) > (low != high)


def test_rows_differ_and_masks_hide_nothing() -> None:
    (x, mask, text) = tensors(x="fp32[4]", attention_mask="int64[4]", text="string")
    assert not np.array_equal(*(made_up_row(x, (4,), n, Style.PLAIN) for n in (0, 1)))
    assert made_up_row(mask, (4,), 0, Style.PLAIN).tolist() == [1, 1, 1, 1]
    assert made_up_row(text, (1,), 0, Style.PLAIN) != made_up_row(text, (1,), 1, Style.PLAIN)


def test_free_axes_get_the_lengths_that_steps_ask_for() -> None:
    free = Model("m", Signature(tensors(x="fp32[3,-1]"), (), 4), sizes=(8, 13))
    groups = [group[0] for group in made_up(free)]
    assert [values.size for values in groups] == [4, 1, 2, 8, 13]
    assert groups[4].inputs([0, 1], 4)["x"].shape == (2, 3, 13)


@pytest.mark.parametrize(
    ("kind", "max_batch", "sizes"),
    [
        pytest.param("fp32[4]", 1000, [2, 1000], id="small rows"),
        pytest.param("fp32[4]", 2, [2], id="pairs"),
        pytest.param("fp32[1024,1024]", 1000, [2, 6], id="large rows"),
        pytest.param("fp32[4096,1024]", 1000, [], id="rows too large for a batch"),
    ],
)
def test_a_batch_is_no_larger_than_one_can_send(
    kind: str, max_batch: int, sizes: list[int]
) -> None:
    asked = model(tensors(x=kind), max_batch)
    assert batch_sizes(asked, next(iter(made_up(asked)))[0]) == sizes


def test_warm_ups_give_values_from_files_and_lengths(tmp_path: Path) -> None:
    models = Models(tmp_path)
    models.python("m", config=io("x FP32 -1", more=warm_up('input_data_file: "f"')))
    found, _ = read_repository(tmp_path, "", Target())
    (first,) = warm_ups_of(found.models["m"].message)
    assert (first.name, first.shapes, first.files) == ("w", {"x": (4,)}, {"x": "f"})
    warm = Model("m", Signature(tensors(x="fp32[-1]"), (), 4), warm_ups=(first,))
    content = np.arange(4, dtype="<f4").tobytes()
    (values,) = own_values(warm, None, {"w": {"x": content}})
    assert values.inputs([0, 0], 4)["x"].tolist() == [[0, 1, 2, 3]] * 2
    assert list(own_values(warm, None, {"w": {"x": content[:5]}})) == []
    assert next(iter(made_up(warm)))[0].inputs([0], 4)["x"].shape == (1, 4)


def test_a_sample_gives_rows_over_again(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"inputs": {"x": [[1, 1], [2, 2]]}, "batch": 2}')
    (values,) = own_values(model(tensors(x="fp32[2]")), read_sample(path), {})
    assert values.inputs([0, 1, 2], 4)["x"].tolist() == [[1, 1], [2, 2], [1, 1]]
    with pytest.raises(InputError, match=r"sample `s`: model `m`: no value for `z`"):
        list(own_values(model(tensors(x="fp32[2]", z="fp32[2]")), read_sample(path), {}))


def test_a_config_as_triton_gives_it() -> None:
    config = {
        "name": "m",
        "platform": "ensemble",
        "max_batch_size": 2,
        "input": [{"name": "x", "data_type": "TYPE_STRING", "dims": ["1"], "optional": True}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
        "ensemble_scheduling": {"step": [{"model_name": "a", "input_map": {"i": "x"}}]},
        "sequence_batching": {
            "control_input": [
                {"control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_STRING"}]}
            ]
        },
        "model_transaction_policy": {"decoupled": True},
    }
    found = model_of(config, "3")
    assert found.signature.inputs[0].optional
    assert (found.max_batch, found.version, found.backend) == (2, "3", "ensemble")
    assert (found.decoupled, found.sequences, found.steps[0].inputs) == (True, "text", {"i": "x"})


@pytest.mark.parametrize(
    ("array", "rows", "fault"),
    [
        (np.zeros((2, 4), np.float32), 2, None),
        (np.zeros((3, 4), np.float32), None, None),
        (np.zeros((2, 4), np.float64), 2, "is TYPE_FP64, and TYPE_FP32 is declared"),
        (np.zeros((1, 4), np.float32), 2, "the shape [1,4], and [2,4] is declared for 2 rows"),
        (np.zeros(4, np.float32), 1, "the shape [4], and [1,4] is declared for 1 row"),
        (np.zeros((2, 5), np.float32), None, "the shape [2,5], and [-1,4] is declared"),
        (np.array([["a"]], object), 1, "is TYPE_STRING, and TYPE_FP32 is declared"),
    ],
)
def test_an_output_is_what_is_declared(array: Array, rows: int | None, fault: str | None) -> None:
    found = [told for _, told in find_faults(model(()), {"y": array}, rows)]
    assert [fault in told for told in found] == [True] * (fault is not None) if fault else not found


def test_an_output_may_come_in_any_answer_of_a_stream() -> None:
    y = np.zeros((1, 4), np.float32)
    assert missing(model(()), ({}, {"y": y})) == []
    assert missing(model(()), ({},)) == ["y"]
    assert missing(model(()), ()) == []


ONE = np.array([1.0, 100.0], np.float32)


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        pytest.param(ONE, ONE + np.float32(0.005), True, id="rounding of the largest value"),
        pytest.param(ONE, ONE + np.float32(0.05), False, id="more than rounding"),
        pytest.param(ONE.astype("f2"), (ONE + 0.5).astype("f2"), True, id="half precision"),
        pytest.param(np.array([7]), np.array([8]), False, id="whole numbers are exact"),
        pytest.param(np.array([np.nan]), np.array([np.nan]), True, id="NaN"),
        pytest.param(np.array([np.nan]), np.array([1.0]), False, id="NaN is no number"),
        pytest.param(np.array([np.inf, 1]), np.array([np.inf, 1]), True, id="infinity"),
        pytest.param(np.array([b"a"], object), np.array([b"b"], object), False, id="texts"),
        pytest.param(
            np.array([b"[0.1234567]"], object), np.array([b"[0.1234568]"], object), True, id="JSON"
        ),
        pytest.param(ONE, ONE[:1], True, id="other lengths are not compared"),
    ],
)
def test_two_answers_are_the_same(given: Array, wanted: Array, same: bool) -> None:
    assert (find_change({"y": given}, {"y": wanted}, ["y"]) is None) is same


def test_the_worst_output_is_told() -> None:
    given = {"a": ONE, "b": ONE * 2}
    change = find_change(given, {"a": ONE + 1, "b": ONE}, ["a", "b"])
    assert change is not None
    assert (change.name, change.text) == ("b", "100 alone and 200 beside other rows")
    assert row_of({"y": np.zeros((2, 4)), "short": np.zeros((1, 4))}, 1).keys() == {"y"}


@pytest.mark.parametrize(("kind", "expected"), [("TYPE_FP32", True), (99, False)])
def test_a_type_may_be_a_number_that_means_none(kind: str | int, expected: bool) -> None:
    assert has_types({"output": [{"name": "y", "data_type": kind, "dims": ["4"]}]}) is expected
