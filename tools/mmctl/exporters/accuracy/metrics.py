"""Scores of answers, one a row, more is better; and how sure their mean is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from mmctl.errors import InputError, missing_extra
from mmctl.exporters.samples import SEED
from mmctl.tensors import Array

Scores = npt.NDArray[Any]
"""Floats, or right and wrong as bool."""
Scorer = Callable[[Array, Array], Scores]
"""Answers of the variant, and what they should be -> scores of the rows."""

SIGMAS = 1.959964
"""Of 95 % of a normal distribution."""
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % interval, over `rows` rows."""

    value: float
    low: float
    high: float
    rows: int


def estimate(scores: Scores) -> Estimate:
    """Wilson's interval for right and wrong, the bootstrap's for other scores."""
    if scores.dtype == np.bool_:
        return wilson(int(scores.sum()), len(scores))
    return _bootstrapped(np.asarray(scores, dtype=np.float64))


def wilson(good: int, rows: int) -> Estimate:
    share = good / rows
    spread = SIGMAS**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    half = SIGMAS * sqrt(share * (1 - share) / rows + spread / (4 * rows)) / (1 + spread)
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half), rows)


def estimate_drop(before: Scores, after: Scores) -> Estimate:
    """By how much the mean fell. Rows are the same rows: what they share cancels out.

    For right and wrong it is the share that broke less the share that got right, each with
    Wilson's interval (Newcombe's method): also where nothing changed, the interval is not empty.
    """
    if before.dtype != np.bool_ or after.dtype != np.bool_:
        return _bootstrapped(before.astype(np.float64) - after.astype(np.float64))
    broke = wilson(int((before & ~after).sum()), len(before))
    healed = wilson(int((after & ~before).sum()), len(before))
    drop = broke.value - healed.value
    below = sqrt((broke.value - broke.low) ** 2 + (healed.high - healed.value) ** 2)
    above = sqrt((broke.high - broke.value) ** 2 + (healed.value - healed.low) ** 2)
    return Estimate(drop, drop - below, drop + above, len(before))


def _bootstrapped(scores: npt.NDArray[np.float64]) -> Estimate:
    random = np.random.default_rng(SEED)
    means = [scores[random.integers(0, len(scores), len(scores))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, (2.5, 97.5))
    return Estimate(float(scores.mean()), float(low), float(high), len(scores))


def agreement(got: Array, want: Array) -> Scores:
    """Whether the largest value of the last axis is in the same place; without an axis after the
    batch, or where values are not floats, whether they are equal. Over several places their share.
    """
    if want.dtype.kind == "f" and want.ndim > 1:
        return _per_row(got.argmax(-1) == want.argmax(-1))
    return _per_row(got == want)


def accuracy(got: Array, labels: Array) -> Scores:
    """`labels` are indices of the last axis where answers are floats, else what is right."""
    best = got.argmax(-1) if got.dtype.kind == "f" and got.ndim > 1 else got
    if best.size != labels.size:
        raise InputError(
            f"labels have shape {list(labels.shape)}, the answers {list(best.shape)}",
            hint="give one label for each answer: an index, not one number per class",
        )
    return _per_row(best == labels.reshape(best.shape))


def _per_row(right: npt.NDArray[np.bool_]) -> Scores:
    rows = np.asarray(right).reshape(len(right), -1)
    return rows[:, 0] if rows.shape[1] == 1 else rows.mean(axis=1)


def cosine(got: Array, want: Array) -> Scores:
    """Of each row's values, all of them as one vector; 1 for two vectors of zeros."""
    a, b = numbers_of(got, want)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = (a * b).sum(axis=1)
    equal: Scores = (a == b).all(axis=1).astype(np.float64)
    np.divide(products, lengths, out=equal, where=lengths > 0)
    return equal


def numbers_of(got: Array, want: Array) -> tuple[Scores, Scores]:
    """Both as [rows, values]; where the second is NaN or infinite there is nothing to compare."""
    a = got.reshape(len(got), -1).astype(np.float64)
    b = want.reshape(len(want), -1).astype(np.float64)
    known = np.isfinite(b)
    return np.where(known, a, 0.0), np.where(known, b, 0.0)


def bleu(got: Array, want: Array) -> Scores:
    """Sentence BLEU of texts, 0 to 1."""
    try:
        from sacrebleu import sentence_bleu
    except ImportError:
        raise missing_extra("metric `bleu`", "text-metrics") from None
    return np.array([sentence_bleu(a, [b]).score / 100 for a, b in _texts(got, want)])


def rouge(got: Array, want: Array) -> Scores:
    """F of ROUGE-L of texts, 0 to 1."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise missing_extra("metric `rouge`", "text-metrics") from None
    scorer = RougeScorer(["rougeL"])
    return np.array([scorer.score(b, a)["rougeL"].fmeasure for a, b in _texts(got, want)])


def _texts(got: Array, want: Array) -> list[tuple[str, str]]:
    """All texts of a row are one: a row has one score."""
    return [(_text(a), _text(b)) for a, b in zip(got, want, strict=True)]


def _text(value: object) -> str:
    words = np.asarray(value, dtype=object).reshape(-1)
    return " ".join(w.decode(errors="replace") if isinstance(w, bytes) else str(w) for w in words)


AGAINST_FP32: Mapping[str, Scorer] = {
    "agreement": agreement,
    "cosine": cosine,
    "bleu": bleu,
    "rouge": rouge,
}
ON_LABELS: Mapping[str, Scorer] = {"accuracy": accuracy, "bleu": bleu, "rouge": rouge}
