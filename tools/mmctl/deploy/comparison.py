"""How a candidate does beside the live one: what Triton counted of both, and whether they agree."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mmctl.client.samples import Sample, compare, read_samples
from mmctl.client.status import Counts
from mmctl.deploy.canary import Candidate, standing
from mmctl.deploy.deployment import Place, counts_of
from mmctl.deploy.target import Server
from mmctl.errors import InferenceError, InputError
from mmctl.tensors import Array
from mmctl.triton.repository import NEXT

RELATIVE = 1e-5
"""Floats that differ by less are the same answer, where a sample has no tolerance of its own."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """`asked` requests went to both; the answers to `differing` of them differ, as `first` says."""

    asked: int
    differing: int
    first: str = ""


Since = Literal["began", "restart", "load"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts of the live one and the candidate. `since` says from when those of the live one are:
    since the candidate `began` to get its share; since the server's last `restart`, where that came
    after it; or, where nobody knows whether there was one, since the `load` of each.
    """

    of: Candidate
    live: Counts
    candidate: Counts
    since: Since = "began"
    answers: Disagreement | None = None


def compare_candidate(place: Place, requests: int = 0) -> Comparison | None:
    """None without a candidate. `requests` of its samples, in turn, are sent to both. Raises
    InputError when there are none, or when there is no candidate to send them to.
    """
    found = standing(place.tree.read())
    if found is None:
        if requests:
            raise InputError("no canary stands, and no shadow, so there is nothing to compare")
        return None
    name = found.model
    beginning = beginning_of(place.tree.ledger(), found)
    live, since = counted(counts_of(place.server, name), beginning, place.server.run)
    candidate = counts_of(place.server, name + NEXT)
    answers = None
    if requests:
        samples = read_samples(place.workspace.pipelines / name / "samples")
        if not samples:
            raise InputError(f"`{name}` has no samples to send", hint="write one, then compare")
        answers = ask_both(place.server, name, itertools.islice(itertools.cycle(samples), requests))
    return Comparison(found, live, candidate, since, answers)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the live one had counted when the candidate began, in which run of the server."""

    counts: Counts
    run: str


def beginning_of(lines: Sequence[Mapping[str, Any]], candidate: Candidate) -> Beginning | None:
    """As the ledger has it. None when it does not: mmctl was killed before it wrote it."""
    wanted = candidate.share.kind, [candidate.model]
    of_it = (line for line in reversed(lines) if (line.get("what"), line.get("names")) == wanted)
    last: Mapping[str, Any] = next(of_it, {})
    if last.get("outcome") == "done" and "counts" in last:
        return Beginning(Counts(**last["counts"]), str(last.get("run", "")))
    return None


def counted(now: Counts, beginning: Beginning | None, run: str) -> tuple[Counts, Since]:
    """What there is to compare of the live one, and since when. Nothing is subtracted unless it is
    certain that the same process has counted on since then.
    """
    if beginning is None or not run or not beginning.run:
        return now, "load"
    if run != beginning.run:
        return now, "restart"
    if not now.goes_on(beginning.counts):
        return now, "load"
    return now.since(beginning.counts), "began"


def ask_both(server: Server, name: str, samples: Iterable[Sample]) -> Disagreement:
    """One that fails where the other answers differs; where both fail they agree."""
    found = [_difference(server, name, sample) for sample in samples]
    differing = [text for text in found if text]
    return Disagreement(len(found), len(differing), differing[0] if differing else "")


def _difference(server: Server, name: str, sample: Sample) -> str:
    live, candidate = (_answer(server, model, sample) for model in (name, name + NEXT))
    if isinstance(live, str) or isinstance(candidate, str):
        failed = [a for a in (candidate, live) if isinstance(a, str)]
        return "" if len(failed) == 2 else f"sample `{sample.name}`: {failed[0]}"
    wanted = {n: _near(array, sample.expect.get(n)) for n, array in live.items()}
    told = compare(candidate, wanted)
    return f"sample `{sample.name}`: {told[0]}" if told else ""


def _answer(server: Server, model: str, sample: Sample) -> Mapping[str, Array] | str:
    try:
        return server.answer(model, sample)
    except InferenceError as error:
        return error.message


def _near(array: Array, expected: object) -> object:
    """An answer as what is expected of another one."""
    if isinstance(expected, dict):
        return {"near": array, "abs": expected["abs"]}
    if not np.issubdtype(array.dtype, np.floating):
        return array
    most = float(np.nanmax(np.abs(array), initial=0.0, where=np.isfinite(array)))
    return {"near": array, "abs": RELATIVE * most}
