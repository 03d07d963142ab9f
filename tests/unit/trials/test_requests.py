"""Samples as requests."""

from __future__ import annotations

import pytest
from pipelines import signature

from mmctl.client.samples import Sample
from mmctl.errors import InputError
from mmctl.trials.requests import joined, single_rows

NAMES = signature({"x": "fp32[-1]"}, {"y": "fp32"}, 3)
WHOLE = signature({"x": "fp32[-1]"}, {"y": "fp32"}, 0)


def sample(*rows: list[float]) -> Sample:
    value = rows[0] if len(rows) == 1 else list(rows)
    return Sample("s", {}, {"x": value}, len(rows), {})


def test_every_row_of_every_sample_is_a_request() -> None:
    singles = single_rows("p", [sample([1, 2]), sample([3, 4], [5, 6])], NAMES)
    assert [request.rows for request in singles] == [(0,), (1,), (2,)]
    assert [request.inputs["x"].tolist() for request in singles] == [[[1, 2]], [[3, 4]], [[5, 6]]]


def test_without_a_batch_axis_a_sample_is_a_request() -> None:
    [request] = single_rows("p", [sample([1, 2])], WHOLE)
    assert request.inputs["x"].tolist() == [1, 2]


def test_a_sample_that_is_wrong_is_named() -> None:
    with pytest.raises(InputError, match="sample `s`: model `p`: no input `x`") as caught:
        single_rows("p", [sample([1, 2])], signature({"z": "fp32[-1]"}, {"y": "fp32"}, 3))
    assert caught.value.hint == "known here: `z`"


def test_rows_of_one_shape_are_joined_as_far_as_a_batch_goes() -> None:
    lengths = (1, 2, 1, 1, 1, 1)
    singles = single_rows("p", [sample([float(i)] * n) for i, n in enumerate(lengths)], NAMES)
    assert [request.rows for request in joined(singles, 3)] == [(0, 2, 3), (4, 5)]
    assert joined(singles, 3)[0].inputs["x"].tolist() == [[0], [2], [3]]
    assert joined(singles, 0) == joined(singles, 1) == ()
