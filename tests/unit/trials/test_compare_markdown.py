"""The table for a README says what the terminal says."""

from __future__ import annotations

from compare_rows import accuracy, comparison, measured

from mmctl.trials.compare import Objective
from mmctl.trials.compare.markdown import render_markdown
from mmctl.trials.compare.objective import recommend
from mmctl.trials.compare.text import advice_of, facts_of, lines_of


def lines() -> list[str]:
    rows = [
        measured("fp32", 10),
        measured("fp16", 12),
        measured("int8", 4, size=25_000_000, judged=accuracy(0.5, within=False)),
    ]
    made = comparison(rows, "no TensorRT engine: there is no GPU here")
    found = recommend(made.rows, Objective.SIZE)
    titles = [f"{row.variant.title} | here" for row in made.rows]
    advice = advice_of(found, Objective.SIZE)
    text = render_markdown(
        made.model, titles, lines_of(made.rows), advice, made.notes, facts_of(made)
    )
    return text.splitlines()


def test_variants_are_columns_with_ratios_and_intervals() -> None:
    found = lines()
    assert found[0] == r"| net | FP32 \| here | FP16 \| here | INT8, dynamic \| here |"
    assert found[1] == "|---|---|---|---|"
    assert found[2] == "| file size | 100 MB (1.00) | 100 MB (1.00) | 25.0 MB (0.25) |"
    assert found[4].startswith("| p50 at batch 1 | 10.0 ms (1.00) [10.0, 10.0] | 12.0 ms (1.20)")
    cosine = next(line for line in found if line.startswith("| cosine of vector"))
    assert cosine.endswith("| 0.5 refused [0.499, 0.501] |")
    assert {line.count(" | ") for line in found if line.startswith("| ")} == {3}


def test_advice_notes_and_circumstances_follow_as_sentences() -> None:
    found = lines()
    first, *_others, note, space, measured_at = found[found.index("") + 1 :]
    assert first.startswith("Recommended for size: FP32, because no variant that may be served is ")
    assert (note, space) == ("No TensorRT engine: there is no GPU here.", "")
    assert measured_at.startswith("Work: 2 GFLOPs each request")
    assert "date: 2026-01-02T03:04:05+00:00; machine: 2 cores of <a CPU>." in measured_at
