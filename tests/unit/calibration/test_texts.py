"""The texts that text models are calibrated with and proven on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mmctl.exporters.accuracy.data import Sample
from mmctl.exporters.accuracy.read import load_samples
from mmctl.exporters.packages import require_fetched
from mmctl.workspace import read_workspace


@pytest.fixture
def samples(root: Path) -> Callable[[str], list[Sample]]:
    require_fetched(read_workspace(root))
    return lambda name: load_samples(root, f"texts:{name}")


@pytest.mark.exports
@pytest.mark.parametrize(("name", "rows"), [("calibration", 64), ("held_out", 256)])
def test_batches_fit_minilm(samples: Callable[[str], list[Sample]], name: str, rows: int) -> None:
    found = samples(name)
    assert sum(sample.rows for sample in found) == rows
    for sample in found:
        ids, mask = sample.inputs["input_ids"], sample.inputs["attention_mask"]
        assert ids.dtype == mask.dtype == np.int64
        assert ids.shape == mask.shape
        assert ids.shape[1] == mask.sum(axis=1).max() <= 128, "padded to the longest, no further"
        assert np.array_equal(ids > 0, mask > 0)


@pytest.mark.exports
def test_equal_calls_give_equal_tokens(samples: Callable[[str], list[Sample]]) -> None:
    for one, other in zip(samples("held_out"), samples("held_out"), strict=True):
        assert np.array_equal(one.inputs["input_ids"], other.inputs["input_ids"])


def test_no_text_is_in_both_nor_twice_in_one(root: Path) -> None:
    folder = root / "calibration" / "texts"
    texts = [line for name in ("calibration", "held_out") for line in _lines(folder, name)]
    assert all(text == text.strip() != "" for text in texts)
    assert len({text.casefold() for text in texts}) == len(texts)


def _lines(folder: Path, name: str) -> list[str]:
    return (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
