"""The comparison as Markdown, for a README: the table, the advice, and when and where. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mmctl.trials.compare.text import Cell, Line


def render_markdown(
    model: str,
    titles: Sequence[str],
    lines: Sequence[Line],
    advice: Sequence[str],
    notes: Sequence[str],
    facts: Mapping[str, str],
) -> str:
    """Ratios to FP32 in parentheses, 95 % intervals in brackets; ends with a newline."""
    rows = [
        _row([model, *titles]),
        "|---" * (len(titles) + 1) + "|",
        *(_row([line.title, *map(_shown, line.cells)]) for line in lines),
    ]
    said = [_sentence(text) for text in (*advice, *notes)]
    measured = "; ".join(f"{name}: {value}" for name, value in facts.items())
    return "\n".join([*rows, "", *said, "", _sentence(measured)]) + "\n"


def _row(cells: Sequence[str]) -> str:
    texts = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def _shown(cell: Cell) -> str:
    interval = f" [{cell.detail.replace(' to ', ', ')}]" if cell.detail else ""
    ratio = "" if cell.ratio is None else f" ({cell.ratio:.2f})"
    return f"{cell.text}{ratio}{interval}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
