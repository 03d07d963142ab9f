"""Plots as SVG inside a page, by matplotlib. Pure: numbers -> text.

Colours are drawn as stand-ins and then named after the page's variables, so that a plot follows
the reader between light and dark. Texts stay text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mmctl.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STAND_INS = {
    "ink": "#010101", "quiet": "#020202", "rule": "#030303", "first": "#040404",
    "second": "#050505", "third": "#060606", "compute": "#070707",
}  # fmt: skip
INK, QUIET, RULE, FIRST, SECOND, THIRD, COMPUTE = STAND_INS.values()
LINES = {"p50": (FIRST, "o", "-"), "p90": (SECOND, "s", "--"), "p99": (THIRD, "^", "-")}
"""Told apart by form, too."""
INCHES = 5.0
STEEP = 30
"""A greatest value of so many times the least is shown on a logarithmic scale."""

Curve = Sequence[float | None]


def refuse_missing() -> None:
    """Before a load, not after it. Raises InputError when there is nothing to plot with."""
    if find_spec("matplotlib") is None:
        raise missing_extra("`--html`", "report")


def throughput_latency(
    throughputs: Sequence[float],
    latencies: Mapping[str, Curve],
    labels: Sequence[str],
    knee: int | None,
) -> str:
    """Answers a second against ms, a line each for p50, p90, p99; `labels` of the levels."""
    with _figure("knee", 3.6) as (figure, finish):
        axes = figure.add_subplot()
        ends = _lines(axes, throughputs, latencies)
        if knee is not None:
            axes.axvline(throughputs[knee], color=INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.annotate(
                "knee", (throughputs[knee], 1), xycoords=("data", "axes fraction"),
                xytext=(0, 3), textcoords="offset points", ha="center", color=INK, weight="bold",
            )  # fmt: skip
        for x, y, label in zip(throughputs, latencies["p99"], labels, strict=True):
            if y is not None:
                axes.annotate(
                    label, (x, y), xytext=(-5, 3), textcoords="offset points", ha="right",
                    color=QUIET,
                )  # fmt: skip
        _scale(axes, latencies.values())
        _name_lines(axes, ends)
        axes.set_xlim(left=0)
        axes.margins(x=0.12)
        axes.set_xlabel("answers a second; beside a point: callers")
        axes.set_ylabel("latency, ms")
        return finish("Throughput against latency")


def over_time(
    times: Sequence[float], latencies: Mapping[str, Curve], rates: Mapping[str, Sequence[float]]
) -> str:
    """Latencies above, in ms; below, what was offered and answered, a second."""
    with _figure("time", 4.4) as (figure, finish):
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 3))
        ends = _lines(above, times, latencies, marker=False)
        _scale(above, latencies.values())
        _name_lines(above, ends, 0.11)
        above.set_ylabel("latency, ms")
        forms = ((QUIET, "--"), (FIRST, "-"))
        for (name, rate), (colour, dashes) in zip(rates.items(), forms, strict=False):
            below.plot(times, rate, color=colour, linestyle=dashes, label=name)
        below.set_ylim(
            0, 1.4 * max((value for rate in rates.values() for value in rate), default=1)
        )
        below.set_ylabel("a second")
        below.set_xlabel("seconds since the start")
        below.legend(frameon=False, labelcolor=INK, loc="upper left", ncols=2, borderaxespad=0.1)
        return finish("Latency over time")


def batch_sizes(models: Mapping[str, Mapping[int, int]]) -> str:
    """By model: how many executions had a batch of a size. One small plot each."""
    columns = 2
    rows = -(-len(models) // columns)
    with _figure("batches", 0.35 + 1.55 * rows) as (figure, finish):
        for n, (model, counts) in enumerate(models.items(), start=1):
            axes = figure.add_subplot(rows, columns, n)
            sizes = sorted(counts)
            axes.bar([str(size) for size in sizes], [counts[size] for size in sizes], color=COMPUTE)
            axes.set_title(model, color=INK, fontsize=10, loc="left")
            axes.locator_params(axis="y", nbins=3)
        return finish("Executions by batch size")


def _lines(
    axes: Axes, xs: Sequence[float], curves: Mapping[str, Curve], *, marker: bool = True
) -> dict[str, tuple[float, float]]:
    """Draws them; the last point of each, by name."""
    ends = {}
    for name, ys in curves.items():
        colour, form, dashes = LINES[name]
        values = [float("nan") if y is None else y for y in ys]
        axes.plot(
            xs, values, color=colour, linestyle=dashes, marker=form if marker else "", markersize=5
        )
        if known := [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None]:
            ends[name] = known[-1]
    return ends


def _name_lines(axes: Axes, ends: Mapping[str, tuple[float, float]], apart: float = 0.075) -> None:
    """At the end of each, one above the other: `apart` is a line of text, as a share of `axes`."""
    last = float("-inf")
    for name, (x, y) in sorted(ends.items(), key=lambda end: end[1][1]):
        at = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1]
        last = max(float(at), last + apart)
        axes.annotate(
            name, (1.01, last), xycoords="axes fraction", color=LINES[name][0], va="center",
        )  # fmt: skip


def _scale(axes: Axes, curves: Any) -> None:
    values = [y for curve in curves for y in curve if y]
    if values and max(values) > STEEP * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)


@contextmanager
def _figure(name: str, inches: float) -> Iterator[tuple[Figure, Callable[[str], str]]]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": name, "font.size": 11, "text.parse_math": False,
        "text.color": INK, "axes.labelcolor": QUIET, "xtick.labelcolor": QUIET,
        "ytick.labelcolor": QUIET, "xtick.color": RULE, "ytick.color": RULE,
        "axes.edgecolor": RULE, "grid.color": RULE, "axes.grid": True, "axes.grid.axis": "y",
        "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    }  # fmt: skip
    with rc_context(settings):
        figure = Figure(figsize=(INCHES, inches), layout="constrained")
        figure.patch.set_visible(False)

        def finish(title: str) -> str:
            for axes in figure.axes:
                axes.patch.set_visible(False)
            written = io.StringIO()
            about = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(written, format="svg", metadata=about)
            return _inline(written.getvalue(), name, title)

        yield figure, finish


def _inline(svg: str, name: str, title: str) -> str:
    """Without what only a file needs; ids that no other plot has."""
    svg = svg[svg.index("<svg") :]
    opening, inside = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    for variable, colour in STAND_INS.items():
        inside = inside.replace(colour, f"var(--{variable})")
    inside = re.sub(r'\bid="', f'id="{name}-', inside)
    inside = inside.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    inside = re.sub(r"<metadata>.*?</metadata>", "", inside, flags=re.DOTALL)
    return f'<svg class="plot" role="img" aria-label="{escape(title)}" {box.group()}>{inside}'
