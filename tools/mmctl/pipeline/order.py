"""Orders: pipelines after those they call, nodes after what they read; or the circle that forbids.

A circle is a path in the direction of the data, its first name again at the end: a -> b -> a.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from mmctl.errors import InvalidFiles
from mmctl.pipeline.findings import PIPELINE_CYCLE, Report
from mmctl.pipeline.source import PipelineSource

NO_CALLS: Mapping[str, Iterable[str]] = {}


def order_pipelines(
    sources: Iterable[PipelineSource], foreign_calls: Mapping[str, Iterable[str]] = NO_CALLS
) -> list[str]:
    """Names, callees first. Raises InvalidFiles with every circle, at the call that closes it.

    `foreign_calls`: what the user's own ensembles call, which may lead back to a pipeline.
    """
    by_name = {source.name: source for source in sources}
    known = {*by_name, *foreign_calls}
    needs = {name: sorted(source.called_names() & known) for name, source in by_name.items()}
    needs |= {name: sorted({*calls} & known) for name, calls in foreign_calls.items()}
    order = order_of(needs)
    findings = []
    for circle in order.circles:
        if not by_name.keys() & circle:
            continue  # ensembles of the user's alone: Triton says so
        caller, callee = _call_of_pipeline(circle, by_name)
        report = Report(by_name[caller].document)
        report.add(
            PIPELINE_CYCLE,
            f"pipelines call each other in a circle: {_path_from(caller, circle)}",
            *("nodes", by_name[caller].calls()[callee], "model"),
            hint="let the model they share be called by both, or make one pipeline of the two",
        )
        findings += report.findings
    if findings:
        raise InvalidFiles(findings)
    return [name for name in order.names if name in by_name]


def _call_of_pipeline(circle: list[str], pipelines: Mapping[str, object]) -> tuple[str, str]:
    """The last call in a circle that pipeline.yaml makes: caller and callee."""
    calls = zip(reversed(circle), list(reversed(circle))[1:], strict=False)
    return next(call for call in calls if call[0] in pipelines)


def _path_from(caller: str, circle: list[str]) -> str:
    """A circle in the direction of the calls."""
    names = list(reversed(circle))[:-1]
    start = names.index(caller)
    return " -> ".join([*names[start:], *names[:start], caller])


@dataclass(frozen=True, slots=True)
class Order:
    """`names` after all that they need, otherwise as they were given. `circles`, each from giver
    to taker: one for each edge that had to go for there to be an order.
    """

    names: list[str]
    circles: list[list[str]]


def order_of(needs: Mapping[str, Iterable[str]]) -> Order:
    """`needs` maps each name to those that come before it."""
    edges = {name: list(needed) for name, needed in needs.items()}
    circles: list[list[str]] = []
    while True:
        sorter = TopologicalSorter(edges)
        try:
            sorter.prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            edges[circle[-1]] = [name for name in edges[circle[-1]] if name != circle[-2]]
            circles.append(circle)
        else:
            return Order(_in_order(sorter, list(needs)), circles)


def _in_order(sorter: TopologicalSorter[str], given: list[str]) -> list[str]:
    place = {name: index for index, name in enumerate(given)}
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        ordered += ready
        sorter.done(*ready)
    return ordered
