"""The comparison as one HTML file: no script, no font, nothing from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from mmctl.loadtest.report.page import html
from mmctl.trials.compare.text import Cell, Line

STYLE = """\
:root { --track: #eceff3; --worse: #b4541a; --same: #7d8793; --pick: #eef6f2; }
@media (prefers-color-scheme: dark) {
  :root { --track: #262b31; --worse: #ee9a5c; --same: #79838e; --pick: #18241f; }
}
body { padding-top: 2.5rem; }
h2 { font-size: 1rem; margin: 2.25rem 0 .5rem; }
.detail { color: var(--quiet); }
.advice { margin: 1.25rem 0; }
.advice p:first-child { font-weight: 600; }
table { border-collapse: collapse; width: 100%; table-layout: fixed;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .55rem .9rem .55rem 0; }
thead th { border-bottom: 1px solid var(--ink); }
tbody tr + tr { border-top: 1px solid var(--rule); }
tbody th { font-weight: 400; color: var(--quiet); padding-left: .5rem; }
td { padding-left: .5rem; }
thead th { padding-left: .5rem; }
.pick { background: var(--pick); }
.number { display: flex; justify-content: space-between; gap: .75rem; white-space: nowrap; }
.ratio { font-weight: 600; }
.detail { font-size: .8rem; white-space: nowrap; }
.track { display: block; height: 6px; border-radius: 3px; margin: .3rem 0 .15rem;
  background: var(--track); position: relative; }
.bar { display: block; height: 100%; border-radius: 3px; background: var(--same); }
.mark { position: absolute; top: -3px; bottom: -3px; width: 1px; background: var(--ink); }
.better .bar { background: var(--good); } .better .ratio { color: var(--good); }
.worse .bar { background: var(--worse); } .worse .ratio { color: var(--worse); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: 0; }
dd { margin: 0; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 1.1rem; max-width: 75ch; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .5rem; } }
"""

COLUMN_REM = 10
"""A column is no narrower: a narrow window scrolls the table."""
SAME = 0.03
"""Ratios so near to 1 are shown as neither better nor worse."""


def render_html(
    model: str,
    titles: Sequence[str],
    recommended: str,
    lines: Sequence[Line],
    advice: Sequence[str],
    notes: Sequence[str],
    facts: Mapping[str, str],
) -> str:
    """`titles` are the variants', in the order of each line's cells; `recommended` is one."""
    picked = titles.index(recommended)
    body = [
        f"<h1>{escape(model)}: which precision to serve</h1>",
        f'<p class="quiet">{escape(facts["date"])}, {escape(facts["machine"])}</p>',
        '<div class="advice">' + "".join(f"<p>{escape(line)}</p>" for line in advice) + "</div>",
        '<div class="wide">' + _table(titles, lines, picked) + "</div>",
        f'<p class="quiet">Bars are ratios to {escape(titles[0])}, which is the thin mark. p50 '
        "and p99 are latencies of a request. Under a median stands its 95 % interval.</p>",
        *_notes(notes),
        "<h2>How it was measured</h2>",
        "<dl>" + "".join(_fact(name, value) for name, value in facts.items()) + "</dl>",
    ]
    return html(f"{model}: which precision to serve", STYLE, body)


def _table(titles: Sequence[str], lines: Sequence[Line], picked: int) -> str:
    names = "".join(
        f'<th scope="col"{_pick(index == picked)}>{escape(title)}</th>'
        for index, title in enumerate(titles)
    )
    rows = "\n".join(_row(line, picked) for line in lines)
    head = f'<thead><tr><th scope="col"></th>{names}</tr></thead>'
    least = f"min-width:{COLUMN_REM * (1 + len(titles))}rem"
    return f'<table style="{least}">\n{head}\n<tbody>\n{rows}\n</tbody>\n</table>'


def _row(line: Line, picked: int) -> str:
    longest = max([1.0, *(cell.ratio for cell in line.cells if cell.ratio is not None)])
    cells = "".join(
        f"<td{_pick(index == picked)}>{_cell(cell, longest, less=line.less)}</td>"
        for index, cell in enumerate(line.cells)
    )
    return f'<tr><th scope="row">{escape(line.title)}</th>{cells}</tr>'


def _pick(yes: bool) -> str:
    return ' class="pick"' if yes else ""


def _cell(cell: Cell, longest: float, *, less: bool) -> str:
    """`longest` is the ratio that fills a track."""
    detail = f'<span class="detail">{escape(cell.detail)}</span>' if cell.detail else ""
    if cell.ratio is None:
        return f'<span class="number">{escape(cell.text)}</span>{detail}'
    return (
        f'<div class="{_verdict(cell.ratio, less=less)}"><span class="number">'
        f'{escape(cell.text)} <span class="ratio">{cell.ratio:.2f}</span></span>'
        f'<span class="track"><span class="bar" style="width:{100 * cell.ratio / longest:.1f}%">'
        f'</span><span class="mark" style="left:{100 / longest:.1f}%"></span></span>{detail}</div>'
    )


def _verdict(ratio: float, *, less: bool) -> str:
    if abs(ratio - 1) <= SAME:
        return "same"
    return "better" if (ratio < 1) == less else "worse"


def _notes(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    return ["<h2>Notes</h2>", "<ul>", *(f"<li>{escape(note)}</li>" for note in notes), "</ul>"]


def _fact(name: str, value: str) -> str:
    return f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
