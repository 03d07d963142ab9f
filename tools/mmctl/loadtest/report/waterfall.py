"""One request as bars: a line a model, from when it was asked to when it had answered. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from mmctl.loadtest.report.page import NONE, Source, figure, table

KEY = (
    '<p class="key" aria-hidden="true"><span><i class="queue"></i>queue</span>'
    '<span><i class="compute"></i>compute</span>'
    '<span><i class="calls"></i>waiting for what it calls</span></p>'
)
Place = tuple[str | int, ...]


def waterfall(source: Source, *keys: str | int, caption: str) -> str:
    """`keys` lead to the request, as `mmctl trace --json` tells it."""
    spans = list(_spans(source.at(*keys), keys, 0))
    length = spans[0][1]["end_ms"] or 1.0
    called = {child["model"]: span["model"] for _, span, _ in spans for child in span["calls"]}
    lines = []
    for place, span, depth in spans:
        name = _name(span, called)
        lines.append(
            f'<li><span style="padding-left:{0.8 * depth:g}rem">{escape(name)}</span>'
            f'<span class="track" aria-hidden="true">{_bars(span, length)}</span>'
            f'<span class="ms">{source.number(*place, "end_ms", digits=1)}</span></li>'
        )
    head = ("model", "asked at ms", "computes from ms", "to ms", "answered at ms")
    rows = [
        (
            f'<span class="deep" style="padding-left:{0.6 * depth:g}rem">'
            f"{escape(_name(span, called))}</span>",
            source.number(*place, "start_ms", digits=2),
            *(_compute(source, place, span, end) for end in (0, 1)),
            source.number(*place, "end_ms", digits=2),
        )
        for place, span, depth in spans
    ]
    bars = f'{KEY}<ol class="waterfall">\n' + "\n".join(lines) + "\n</ol>"
    return figure(bars, caption, table(head, rows, "the request in numbers"))


def _spans(span: Any, place: Place, depth: int) -> Iterator[tuple[Place, Mapping[str, Any], int]]:
    """With the place of each in the document, and how deep it is called."""
    yield place, span, depth
    for n, child in enumerate(span["calls"]):
        yield from _spans(child, (*place, "calls", n), depth + 1)


def _name(span: Mapping[str, Any], called: Mapping[str, str]) -> str:
    model = str(span["model"])
    return model.removeprefix(f"{called.get(model)}__") or "the request"


def _compute(source: Source, place: Place, span: Mapping[str, Any], end: int) -> str:
    if span["compute_ms"] is None:
        return NONE
    return source.number(*place, "compute_ms", end, digits=2)


def _bars(span: Mapping[str, Any], length: float) -> str:
    start, end = span["start_ms"], span["end_ms"]
    if span["compute_ms"] is None:
        kind = "calls" if span["calls"] else "queue"  # what never computed has only waited
        return _bar(kind, start, end, length)
    began, done = span["compute_ms"]
    kind = "calls" if span["calls"] else "compute"
    return _bar("queue", start, began, length) + _bar(kind, began, done, length)


def _bar(kind: str, start: float, end: float, length: float) -> str:
    left, width = 100 * start / length, 100 * max(0.0, end - start) / length
    return f'<i class="{kind}" style="left:{left:.3f}%;width:{width:.3f}%"></i>'
