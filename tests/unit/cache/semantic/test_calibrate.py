"""Learning before serving."""

from __future__ import annotations

from pathlib import Path

import pytest
from semantic_streams import entry, points

from mmctl.cache.semantic.calibrate import calibrated, read_texts
from mmctl.cache.settings import Semantic
from mmctl.errors import InputError

SEMANTIC = Semantic.model_validate(
    {"input": "text", "output": "label", "policy": {"verified": {"max_error": 0.05}}}
)


@pytest.mark.parametrize(("count", "wrong", "proves"), [(800, 0, True), (100, 0, False)])
def test_enough_texts_prove_a_gate(count: int, wrong: float, proves: bool) -> None:
    known = {str(place): point for place, point in enumerate(points(count, wrong=wrong))}
    trust = calibrated(
        SEMANTIC, known, lambda text: known[text][0], lambda text: entry(known[text][1]), "e"
    )
    assert trust.embedder == "e"
    assert (trust.calibration is not None) is proves


def test_each_text_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "b", "label": 1}\n{"text": "a"}\n')
    assert read_texts(path) == ["a", "b"]


@pytest.mark.parametrize("line", ["a", "[]", '{"label": "a"}', '{"text": 1}', "1"])
def test_a_line_that_is_no_text_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n' + line)
    with pytest.raises(InputError, match=r"texts\.jsonl:2"):
        read_texts(path)


def test_a_file_without_texts(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no texts"):
        read_texts(tmp_path / "texts.jsonl")
