"""`mmctl demo`: what its table shows of an answer."""

from __future__ import annotations

import numpy as np
import pytest

from mmctl.cli.demo import shown_value
from mmctl.tensors import Array


@pytest.mark.parametrize(
    ("array", "text"),
    [
        pytest.param(np.array([["block"]], dtype=object), "block", id="text"),
        pytest.param(np.array([0.5, 1], dtype=np.float32), "0.500", id="the first of several"),
        pytest.param(np.zeros((1, 0), dtype=np.int32), "[]", id="none at all"),
        pytest.param(np.array(["x" * 61], dtype=object), "x" * 59 + "\u2026", id="a long text"),
    ],
)
def test_a_cell_holds_the_first_value_of_an_answer(array: Array, text: str) -> None:
    assert shown_value(array) == text
