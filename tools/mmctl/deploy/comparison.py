"""How a canary does beside the live one: what Triton counted of both, and whether they agree."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmctl.client.samples import Sample, compare, read_samples
from mmctl.client.status import Counts
from mmctl.deploy.canary import Canary, standing
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts of the live one and the candidate since the candidate takes its share.

    Triton does not say since when it counts: one that was restarted meanwhile, and whose live one
    has counted more again than when the canary began, has too few requests for that.
    """

    canary: Canary
    live: Counts
    candidate: Counts
    answers: Disagreement | None = None


def compare_canary(place: Place, requests: int = 0) -> Comparison | None:
    """None without a canary. `requests` of its samples, in turn, are sent to both. Raises
    InputError when there are none, or when there is no canary to send them to.
    """
    canary = standing(place.tree.read())
    if canary is None:
        if requests:
            raise InputError("no canary stands, so there is nothing to compare")
        return None
    name = canary.model
    earlier = _counts_at_the_beginning(place.tree.ledger(), name)
    live = counts_of(place.server, name).since(earlier)
    candidate = counts_of(place.server, name + NEXT)
    answers = None
    if requests:
        samples = read_samples(place.workspace.pipelines / name / "samples")
        if not samples:
            raise InputError(f"`{name}` has no samples to send", hint="write one, then compare")
        answers = ask_both(place.server, name, itertools.islice(itertools.cycle(samples), requests))
    return Comparison(canary, live, candidate, answers)


def _counts_at_the_beginning(lines: Sequence[Mapping[str, Any]], name: str) -> Counts:
    for line in reversed(lines):
        if line.get("names") == [name] and (counts := line.get("counts")):
            return Counts(**counts)
    return Counts()


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
