"""The comparison as one HTML file: no script, no font, nothing from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import dedent

from mmctl.trials.compare.text import Cell, Line

STYLE = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2024; --quiet: #5b6470; --rule: #dfe3e8;
  --track: #eceff3; --better: #1f7a5c; --worse: #b4541a; --same: #7d8793; --pick: #eef6f2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e6e9ec; --quiet: #98a2ad; --rule: #2c3238;
    --track: #262b31; --better: #4cc497; --worse: #ee9a5c; --same: #79838e; --pick: #18241f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 3rem; max-width: 76rem;
  background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1rem; margin: 2.25rem 0 .5rem; }
p { margin: .25rem 0; max-width: 80ch; }
.quiet, .detail, dt { color: var(--quiet); }
.advice { border-left: 3px solid var(--better); padding: .1rem 0 .1rem .9rem; margin: 1.25rem 0; }
.advice p:first-child { font-weight: 600; }
.wide { overflow-x: auto; }
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
.better .bar { background: var(--better); } .better .ratio { color: var(--better); }
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
    return _page(f"{model}: which precision to serve", "\n".join(body))


def _page(title: str, body: str) -> str:
    head = dedent(
        f"""\
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>{escape(title)}</title>
        """
    )
    return f"{head}<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"


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
