"""How good answers are, by labelled sets: what is a class, a text, a number, and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipelines import signature

from mmctl.client.samples import Sample
from mmctl.errors import InferenceError, InputError, WorldError
from mmctl.inference import InferResponse
from mmctl.loadtest.quality import grade, macro_f1, read_labelled
from mmctl.tensors import Array

ONE = signature({"text": "string"}, {"label": "string"})
TWO = signature({"text": "string"}, {"label": "string", "score": "fp32"})


def text(value: str) -> Array:
    array = np.empty((1, 1), dtype=object)
    array[0, 0] = value
    return array


def graded(answers: Sequence[Array], labels: Sequence[Any]) -> dict[str, Any]:
    samples = [Sample(str(n), {}, {}, 1, {"y": label}) for n, label in enumerate(labels)]
    found = grade(samples, lambda n: InferResponse({"y": answers[n]}))
    assert (found["samples"], found["failed"]) == (len(labels), 0)
    return dict(found["outputs"]["y"])


def test_a_text_of_one_word_is_a_class() -> None:
    answers = [text(word) for word in ("ham", "ham", "spam", "ham")]
    found = graded(answers, ["ham", "spam", "spam", "ham"])
    assert found["kind"] == "classes"
    assert found["accuracy"]["value"] == 0.75
    assert 0 < found["accuracy"]["low"] < 0.75 < found["accuracy"]["high"] < 1
    assert found["macro_f1"] == pytest.approx((2 * 2 / 5 + 2 * 1 / 3) / 2, abs=1e-6)


def test_one_number_for_each_class_answers_with_the_largest() -> None:
    rows = [np.array([row], np.float32) for row in ([0.9, 0.1, 0], [0.2, 0.3, 0.5], [1, 2, 0])]
    found = graded(rows, [0, 2, 0])
    assert found["kind"] == "classes"
    assert found["accuracy"]["value"] == pytest.approx(2 / 3, abs=1e-6)


def test_whole_numbers_are_classes() -> None:
    found = graded([np.array([[n]], np.int64) for n in (1, 2, 3, 3)], [1, 2, 3, 4])
    assert (found["kind"], found["accuracy"]["value"]) == ("classes", 0.75)


def test_other_numbers_are_right_within_their_tolerance() -> None:
    labels = [{"near": 0.5, "abs": 0.1}, {"near": 0.5, "abs": 0.01}]
    found = graded([np.array([[0.45]], np.float32)] * 2, labels)
    assert found["kind"] == "numbers"
    assert found["accuracy"]["value"] == 0.5


def test_texts_are_scored_word_by_word() -> None:
    pytest.importorskip("sacrebleu")
    pytest.importorskip("rouge_score")
    same = "the cat sat on the mat today"
    found = graded([text(same), text("a dog ran off")], [same, "the cat sat on the mat"])
    assert found["kind"] == "text"
    assert found["accuracy"]["value"] == 0.5
    assert found["bleu"]["value"] == pytest.approx(0.5, abs=0.05)
    assert found["rouge_l"]["value"] == pytest.approx(0.5, abs=0.01)


def test_macro_f1_agrees_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for _ in range(20):
        got, want = random.integers(0, 5, 40), random.integers(0, 6, 40)
        expected = metrics.f1_score(want, got, average="macro", zero_division=0)
        assert macro_f1(got, want) == pytest.approx(expected, abs=1e-6)


def test_a_request_that_is_refused_has_failed_and_the_others_count() -> None:
    def ask(number: int) -> InferResponse:
        if number == 0:
            raise InferenceError("model `m`: no")
        return InferResponse({"y": text("ham")})

    samples = [Sample(str(n), {}, {}, 1, {"y": "ham"}) for n in range(3)]
    found = grade(samples, ask)
    assert (found["samples"], found["failed"]) == (3, 1)
    assert found["outputs"]["y"]["accuracy"]["value"] == 1


def test_a_server_that_is_gone_ends_it() -> None:
    def ask(_: int) -> InferResponse:
        raise WorldError("no Triton answers")

    with pytest.raises(WorldError, match="no Triton"):
        grade([Sample("a", {}, {}, 1, {"y": 1})], ask)


def read(tmp_path: Path, lines: str, outputs: Any = ONE) -> list[Mapping[str, object]]:
    path = tmp_path / "set.jsonl"
    path.write_text(lines)
    return [sample.expect for sample in read_labelled(path, outputs)]


def test_a_bare_label_is_that_of_the_only_output(tmp_path: Path) -> None:
    lines = '{"inputs": {"text": "a"}, "label": "x"}\n\n{"inputs": {"text": "b"}, "label": "y"}\n'
    assert read(tmp_path, lines) == [{"label": "x"}, {"label": "y"}]


def test_of_several_outputs_the_label_says_which(tmp_path: Path) -> None:
    line = '{"inputs": {"text": "a"}, "label": {"score": 0.5}}'
    assert read(tmp_path, line, TWO) == [{"score": 0.5}]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "set.jsonl:1: not JSON"),
        ("[]", "set.jsonl:1: not a labelled request"),
        ('{"inputs": {}}', "set.jsonl:1: not a labelled request"),
        ('{"inputs": [], "label": 1}', "set.jsonl:1: `inputs` is not a mapping"),
        ('{"inputs": {}, "label": 1}', "there are `label`, `score`"),
        ('{"inputs": {}, "label": {"lable": 1}}', "sample `1`: no output `lable`"),
        ("", "no labelled sample"),
    ],
)
def test_a_set_that_is_wrong_is_told_with_its_place(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, line, TWO)
    assert told in error.value.message


def test_samples_with_expect_are_a_set_and_others_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"inputs": {"text": "a"}, "expect": {"label": "x"}}')
    (tmp_path / "b.json").write_text('{"inputs": {"text": "b"}}')
    assert [sample.name for sample in read_labelled(tmp_path, ONE)] == ["a"]
