"""The page around a report, and what its parts are made of. Pure: values -> HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

BASE = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2024; --quiet: #5b6470; --rule: #dfe3e8; --good: #1f7a5c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e6e9ec; --quiet: #98a2ad; --rule: #2c3238; --good: #4cc497;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.5rem 3rem; max-width: 76rem;
  background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .25rem; }
p { margin: .25rem 0; max-width: 80ch; }
.quiet, dt { color: var(--quiet); }
.advice { border-left: 3px solid var(--good); padding: .1rem 0 .1rem .9rem; margin: 1rem 0; }
.wide { overflow-x: auto; }
"""
"""What the pages of mmctl have in common."""
STYLE = """\
:root {
  --track: #f0f2f5; --first: #1f6fb2; --second: #7a52a8; --third: #b4541a; --hot: #f08a3c;
  --compute: #1f6fb2; --queue: #e2a04a; --compose: #a9b2bc; --bad: #a8322a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --track: #20252a; --first: #6cb2ee; --second: #b99ae4; --third: #f0a066; --hot: #c8621c;
    --compute: #4f9bdc; --queue: #b9822f; --compose: #626c77; --bad: #ee8a80;
  }
}
body { overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
figcaption { color: var(--quiet); }
a { color: var(--first); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; }
:focus-visible { outline: 2px solid var(--first); outline-offset: 2px; }
.warning { border-left: 3px solid var(--bad); padding: .1rem 0 .1rem .9rem; margin: 1rem 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  gap: .75rem; margin: 1.25rem 0; }
.tiles div { background: var(--track); border-radius: 6px; padding: .6rem .8rem; }
.tiles dt { font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tiles small { font-size: .85rem; color: var(--quiet); }
figure { margin: 1rem 0; min-width: 0; }
figcaption { font-size: .9rem; max-width: 80ch; margin-top: .35rem; }
.plots { display: grid; gap: 0 2.5rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 29rem), 1fr)); }
.plots > * { min-width: 0; }
svg { display: block; max-width: 100%; height: auto; }
svg.plot { width: 100%; max-width: 32rem; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif !important; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { text-align: right; vertical-align: top; padding: .3rem 0 .3rem 1.25rem;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.texts td, .texts th + th { text-align: left; white-space: normal; }
thead th { border-bottom: 1px solid var(--ink); font-weight: 600; }
tbody th { font-weight: 400; white-space: normal; min-width: 10.5rem; max-width: 24rem; }
tbody tr + tr { border-top: 1px solid var(--rule); }
.deep { display: block; }
summary { cursor: pointer; padding: .3rem 0; color: var(--first); width: fit-content; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: 0; }
dl.facts dd { margin: 0; }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.graph { display: block; margin: 0 auto; }
.graph rect { stroke: var(--quiet); stroke-width: 1; }
.graph text { fill: var(--ink); text-anchor: middle; font-size: 13px; }
.graph .share { font-size: 12px; }
.graph path { fill: none; stroke: var(--quiet); stroke-width: 1.25; }
.graph .head { fill: var(--quiet); stroke: none; }
.waterfall { list-style: none; margin: 0; padding: 0; font-size: .9rem; }
.waterfall li { display: grid; grid-template-columns: minmax(0, 17rem) minmax(0, 1fr) 5.5rem;
  gap: 0 .75rem; align-items: center; padding: .12rem 0; }
.waterfall .ms { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.waterfall .track { position: relative; height: 14px; background: var(--track);
  border-radius: 2px; }
.waterfall .track i { position: absolute; top: 0; bottom: 0; min-width: 1px; }
.waterfall .calls { top: 5px !important; bottom: 5px !important; background: var(--compose); }
.waterfall .queue { background: var(--queue); }
.waterfall .compute { background: var(--compute); }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; font-size: .9rem; margin: .25rem 0; }
.key i { display: inline-block; width: 1.1rem; height: .75rem; margin-right: .4rem; }
.key .calls { height: 4px; vertical-align: middle; background: var(--compose); }
.key .queue { background: var(--queue); } .key .compute { background: var(--compute); }
@media (max-width: 40rem) {
  body { padding: 1.25rem 1rem 2rem; }
  dl.facts { grid-template-columns: 1fr; } dl.facts dd { margin-bottom: .5rem; }
  .waterfall li { grid-template-columns: minmax(0, 1fr) auto; padding: .2rem 0; }
  .waterfall .track { grid-row: 2; grid-column: 1 / -1; }
  .graph text { font-size: 14px; }
}
@media print { details > * { display: block; } body { max-width: none; } }
"""
NONE = "–"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A browser then runs nothing of the page and fetches nothing, whatever is in it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The document that a page shows: each number in it says where in there it stands."""

    document: Mapping[str, Any]

    def at(self, *keys: str | int) -> Any:
        found: Any = self.document
        for key in keys:
            found = found[key]
        return found

    def number(self, *keys: str | int, digits: int = 1, percent: bool = False) -> str:
        """A number as HTML: rounded to read, exact as `value`, with its JSON pointer."""
        value = self.at(*keys)
        if value is None:
            return NONE
        pointer = "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
        if percent:
            shown = f"{value:.0%}"
        else:
            shown = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
        return (
            f'<data value="{escape(json.dumps(value))}" data-json="{escape(pointer)}">'
            f"{escape(shown)}</data>"
        )


def page(title: str, body: Iterable[str], document: Mapping[str, Any]) -> str:
    """`document` is embedded as it is; `<` is written so that no text of it can end the script."""
    embedded = json.dumps(document, ensure_ascii=False).replace("<", "\\u003c")
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<link rel="icon" href="data:,">',
    )
    results = f'<script type="application/json" id="results">{embedded}</script>'
    return html(title, STYLE, [*body, results], head)


def html(title: str, style: str, body: Iterable[str], head: Iterable[str] = ()) -> str:
    """A whole file: `style` comes after what all pages have."""
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            *head,
            f"<title>{escape(title)}</title>\n<style>\n{BASE}{style}</style>\n</head>\n<body>",
            *body,
            "</body>\n</html>\n",
        )
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], name: str, *, texts: bool = False
) -> str:
    """Cells are HTML; the first of a row is its heading. A narrow window scrolls it alone.
    `texts` are not numbers, and may be long.
    """
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    mark = ' class="texts"' if texts else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}">'
        f"<table{mark}>\n"
        f"<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def figure(plot: str, caption: str, numbers: str) -> str:
    """A plot with its caption, and its numbers as a table that opens. `caption` is HTML."""
    return (
        f"<figure>\n{plot}\n<figcaption>{caption}</figcaption>\n"
        f"<details><summary>Its numbers</summary>\n{numbers}\n</details>\n</figure>"
    )


def facts(named: Mapping[str, str]) -> str:
    """Values are HTML."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in named.items())
    return f'<dl class="facts">{rows}</dl>'


def section(identifier: str, title: str, *parts: str) -> str:
    body = "\n".join(part for part in parts if part)
    return (
        f'<section aria-labelledby="{identifier}">\n<h2 id="{identifier}">{escape(title)}</h2>\n'
        f"{body}\n</section>"
    )
