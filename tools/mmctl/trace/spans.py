"""What Triton exports of a request as OTLP/HTTP JSON -> a tree of spans.

A request is `InferRequest` > the model that was asked > what that calls, and so on. A model that
computes has a `compute` span below it, which is folded into it here. Times are nanoseconds of one
clock of the server. Fields of the export are those that Triton 24.10 writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ROOT = "InferRequest"
COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Compute:
    """When an instance worked on a request: `infer` begins when its inputs are there, `output`
    when its answer is. From `output` on the answer may be handed to whoever waits for it.
    """

    start: int
    infer: int
    output: int
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """A model's share in one request, in nanoseconds. The root has no model: it is the request as
    the server's front end saw it.
    """

    model: str
    start: int
    end: int
    children: tuple[Span, ...] = ()
    compute: Compute | None = None
    version: str = ""

    @property
    def ready(self) -> int:
        """When its answer could be used first. Triton ends a span a little after it has handed
        the answer on: the next model has begun by then.
        """
        if self.children:  # what is ready after the end was not waited for
            inside = (ready for child in self.children if (ready := child.ready) <= self.end)
            return max(inside, default=self.end)
        return self.compute.output if self.compute else self.end

    def walk(self) -> Iterator[Span]:
        """This span and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def read_traces(exports: Iterable[Mapping[str, Any]]) -> dict[str, Span]:
    """Whole requests by trace id (32 hexadecimal digits, small letters).

    `exports` are the bodies that Triton has posted; a request may be spread over several. One
    whose root is not there (yet) is left out. Raises ValueError for what is no OTLP export.
    """
    by_trace: dict[str, list[Mapping[str, Any]]] = {}
    for span in _spans(exports):
        by_trace.setdefault(str(span["traceId"]).lower(), []).append(span)
    trees = {trace: _tree(spans) for trace, spans in by_trace.items()}
    return {trace: tree for trace, tree in trees.items() if tree is not None}


def _spans(exports: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    try:
        for export in exports:
            for resource in export["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    yield from scope["spans"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an OTLP export of traces: {error}") from error


def _tree(spans: Iterable[Mapping[str, Any]]) -> Span | None:
    below: dict[str, list[Mapping[str, Any]]] = {}
    root = None
    for span in spans:
        if span["name"] == ROOT:
            root = span
        else:
            below.setdefault(str(span["parentSpanId"]), []).append(span)
    return None if root is None else _span(root, below, "")


def _span(
    span: Mapping[str, Any], below: Mapping[str, list[Mapping[str, Any]]], model: str
) -> Span:
    under = below.get(str(span["spanId"]), [])
    children = [
        _span(child, below, str(child["name"])) for child in under if child["name"] != COMPUTE
    ]
    computes = [child for child in under if child["name"] == COMPUTE]
    return Span(
        model=model,
        start=int(span["startTimeUnixNano"]),
        end=int(span["endTimeUnixNano"]),
        children=tuple(sorted(children, key=lambda child: (child.start, child.end))),
        compute=_compute(computes[0]) if computes else None,
        version=_version(span),
    )


def _compute(span: Mapping[str, Any]) -> Compute:
    start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    at = {str(event["name"]): int(event["timeUnixNano"]) for event in span.get("events", ())}
    infer = at.get("COMPUTE_INPUT_END", start)
    return Compute(start, infer, at.get("COMPUTE_OUTPUT_START", end), end)


def _version(span: Mapping[str, Any]) -> str:
    for attribute in span.get("attributes", ()):
        if attribute["key"] == "triton.model_version":
            return str(next(iter(attribute["value"].values())))
    return ""
