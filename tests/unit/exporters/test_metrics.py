"""Scores, their intervals, and which metric judges which output."""

import sys

import numpy as np
import pytest

from mmctl.errors import InputError
from mmctl.exporters.accuracy.judge import Judge, Judged
from mmctl.exporters.accuracy.metrics import (
    Estimate,
    accuracy,
    agreement,
    bleu,
    cosine,
    estimate,
    estimate_drop,
    rouge,
    wilson,
)
from mmctl.exporters.accuracy.rules import Rules, metric_for

LOGITS = np.array([[0.1, 2.0, -1.0], [3.0, 0.0, 1.0]], np.float32)


@pytest.mark.parametrize(
    ("good", "rows", "low", "high"),
    [
        pytest.param(50, 100, 0.4038, 0.5962, id="half"),
        pytest.param(719, 719, 0.9947, 1.0, id="all are right, and one might not be"),
        pytest.param(0, 10, 0.0, 0.2775, id="none"),
    ],
)
def test_a_share_has_wilsons_interval(good: int, rows: int, low: float, high: float) -> None:
    found = wilson(good, rows)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_a_mean_has_the_interval_of_its_resamples_and_the_same_one_every_time() -> None:
    scores = np.random.default_rng(1).normal(0.9, 0.1, 400)
    found = estimate(scores)
    assert found == estimate(scores)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.1 / 20, rel=0.15)


def test_a_drop_counts_what_broke_and_what_healed() -> None:
    before = np.array([True] * 90 + [False] * 10)
    after = np.array([False] * 3 + [True] * 88 + [False] * 9)
    found = estimate_drop(before, after)
    assert found.value == pytest.approx(0.02)
    assert found.low < 0.02 < found.high


def test_no_change_in_few_rows_does_not_prove_that_there_is_none() -> None:
    right = np.ones(100, bool)
    assert estimate_drop(right, right).high == pytest.approx(0.037, abs=1e-3)


def test_a_drop_of_other_scores_is_paired() -> None:
    before = np.linspace(0, 1, 50)
    found = estimate_drop(before, before - 0.1)
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.1))


@pytest.mark.parametrize(
    ("got", "want", "scores"),
    [
        pytest.param(LOGITS * 3, LOGITS, [True, True], id="same place of the largest"),
        pytest.param(LOGITS[::-1], LOGITS, [False, False], id="other places"),
        pytest.param(np.array([3, 4]), np.array([3, 5]), [True, False], id="classes"),
        pytest.param(
            np.array([[[1.0, 0], [1, 0]]]), np.array([[[1.0, 0], [0, 1]]]), [0.5], id="per token"
        ),
    ],
)
def test_agreement_is_about_places(got: np.ndarray, want: np.ndarray, scores: list[float]) -> None:
    assert agreement(got, want).tolist() == scores


def test_accuracy_takes_one_label_a_row() -> None:
    assert accuracy(LOGITS, np.array([[1], [2]])).tolist() == [True, False]
    with pytest.raises(InputError, match=r"labels have shape \[2, 3\], the answers \[2\]"):
        accuracy(LOGITS, np.eye(3)[:2])


def test_cosine_of_zeros_is_one_only_with_zeros() -> None:
    a = np.array([[0.0, 0], [0, 0], [1, 1], [1, 0]])
    b = np.array([[0.0, 0], [1, 0], [2, 2], [0, 1]])
    assert cosine(a, b).tolist() == pytest.approx([1, 0, 1, 0])


@pytest.mark.parametrize("metric", [bleu, rouge])
@pytest.mark.filterwarnings("ignore")
def test_texts_are_compared_by_their_words(metric: object) -> None:
    pytest.importorskip("sacrebleu")
    pytest.importorskip("rouge_score")
    got = np.array([["the cat sat on the mat"], [b"a dog ran"]], object)
    want = np.array([["the cat sat on the mat"], ["nothing alike at all"]], object)
    same, other = metric(got, want)  # type: ignore[operator]
    assert same == pytest.approx(1)
    assert other < 0.2


def test_the_extra_for_texts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(InputError, match="metric `bleu` needs the `text-metrics` extra"):
        bleu(np.array(["a"], object), np.array(["a"], object))


@pytest.mark.parametrize(
    ("name", "want", "rules", "labelled", "metric"),
    [
        pytest.param("logits", LOGITS, Rules("int8"), False, "agreement", id="by its name"),
        pytest.param(
            "y", LOGITS, Rules("int8", classes=frozenset("y")), False, "agreement", id="label file"
        ),
        pytest.param("y", np.full((2, 4), 0.25), Rules("int8"), False, "agreement", id="shares"),
        pytest.param("y", LOGITS, Rules("int8"), False, "cosine", id="any vector"),
        pytest.param("logits", LOGITS, Rules("fp16"), False, "cosine", id="FP16 must be closer"),
        pytest.param("y", LOGITS, Rules("int8"), True, "accuracy", id="with labels"),
        pytest.param("y", LOGITS[:, :1], Rules("int8"), False, "closeness", id="one number"),
        pytest.param("y", np.array([1, 2]), Rules("int8"), False, "agreement", id="classes"),
        pytest.param("y", LOGITS, Rules("int8", metric="agreement"), False, "agreement", id="said"),
    ],
)
def test_each_output_has_the_metric_that_tells_most(
    name: str, want: np.ndarray, rules: Rules, labelled: bool, metric: str
) -> None:
    labels = np.array([0, 1]) if labelled else None
    assert metric_for(name, want, rules, labels) == metric


@pytest.mark.parametrize(
    ("metric", "want", "said"),
    [
        ("agreement", LOGITS[:, :1], "tells nothing about `y`, which is one number a row"),
        ("cosine", LOGITS[:, :1], "tells nothing about `y`, which is one number a row"),
        ("cosine", np.array([1, 2]), "is for floats, `y` is int64"),
        ("bleu", LOGITS, "is for texts, `y` is float32"),
    ],
)
def test_a_metric_that_cannot_fail_is_no_metric(metric: str, want: np.ndarray, said: str) -> None:
    with pytest.raises(InputError, match=said):
        metric_for("y", want, Rules("int8", metric=metric), None)


def judged(rules: Rules, got: np.ndarray, want: np.ndarray, **labels: np.ndarray) -> list[Judged]:
    judge = Judge(rules)
    for start in range(0, len(want), 50):
        part = slice(start, start + 50)
        right = {name: array[part] for name, array in labels.items()}
        judge.add({"y": got[part]}, {"y": want[part]}, right)
    return judge.judged()


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 4))


def test_one_number_a_row_is_judged_by_the_scale_of_all_rows() -> None:
    want = np.array([[100.0]] + [[0.5]] * 99)
    (found,) = judged(Rules("int8"), want + 0.5, want)
    assert (found.metric, found.found.value) == ("closeness", pytest.approx(0.995))
    assert found.is_within


def test_labels_are_judged_by_the_drop_and_by_the_least_score() -> None:
    want = rows(200)
    right = want.argmax(1)
    got = want.copy()
    got[:6] = -got[:6]
    drop, least = judged(Rules("int8", least=0.9), got, want, y=right)
    assert (drop.is_drop, drop.is_within, drop.found.value) == (True, False, pytest.approx(3))
    assert drop.text().startswith("accuracy of `y` falls by 3 points (95 %: ")
    assert (least.is_drop, least.is_within, least.limit) == (False, True, 0.9)


@pytest.mark.parametrize(
    ("found", "limit", "is_drop", "doubt"),
    [
        (Estimate(1, 0.995, 1, 719), 0.99, False, ""),
        (Estimate(1, 0.96, 1, 100), 0.99, False, "100 held-out rows are too few to tell: the 95 %"),
        (Estimate(1, 1, 1, 8), 0.99, False, "8 held-out rows are too few to tell"),
        (Estimate(0.2, -0.3, 0.8, 719), 1, True, ""),
        (Estimate(0.2, -0.9, 1.3, 200), 1, True, "200 held-out rows are too few to tell: the 95 %"),
    ],
)
def test_data_that_is_too_small_to_tell_is_told(
    found: Estimate, limit: float, is_drop: bool, doubt: str
) -> None:
    said = Judged("agreement", "y", found, limit, is_drop=is_drop).doubt
    assert said.startswith(doubt)
    assert bool(said) == bool(doubt)


def test_the_users_metric_sees_all_outputs_and_the_labels() -> None:
    want = rows(100)

    def own(answers: object, labels: object) -> np.ndarray:
        return answers["y"].argmax(1) == labels  # type: ignore[index,no-any-return]

    rules = Rules("int8", metric="m:own", own=own)
    (found,) = judged(rules, want, want, **{"": want.argmax(1)})
    assert (found.metric, found.output, found.fp32) == ("m:own", "all outputs", 1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (0.5, r"returns float64 of shape \[\] for 50 rows"),
        (np.array(["a"] * 50), "returns <U1"),
        (np.full(50, np.nan), "returns NaN"),
    ],
)
def test_the_users_metric_gives_one_number_a_row(answer: object, said: str) -> None:
    rules = Rules("int8", metric="m:own", own=lambda *_: answer)
    with pytest.raises(InputError, match=said):
        judged(rules, rows(50), rows(50))


def test_accuracy_without_labels_is_no_metric() -> None:
    with pytest.raises(InputError, match=r"`metric: accuracy` needs labels"):
        judged(Rules("int8", metric="accuracy"), rows(50), rows(50))
