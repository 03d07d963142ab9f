"""Quality beside speed: a labelled set through a pipeline, and how good its answers are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mmctl.client.samples import Sample, compare, read_samples
from mmctl.diagnostics import nearest
from mmctl.errors import InferenceError, InputError
from mmctl.exporters.accuracy.metrics import Scores, accuracy, bleu, estimate, rouge
from mmctl.files import read_text
from mmctl.inference import InferResponse
from mmctl.tensors import Array, Signature

_LINE = '{"inputs": {"text": "..."}, "label": "..."}'


def read_labelled(path: Path, signature: Signature) -> list[Sample]:
    """The set in a file of JSON lines (`inputs`, `label`), or in a folder of samples with `expect`.
    A label that is no mapping is that of the only output. Raises InputError with the place.
    """
    samples = read_samples(path) if path.is_dir() else _read_lines(path, signature)
    labelled = [sample for sample in samples if sample.expect]
    if not labelled:
        raise InputError(
            f"{path}: no labelled sample",
            hint=f"write lines like {_LINE}, or samples with `expect`",
        )
    outputs = [spec.name for spec in signature.outputs]
    for sample in labelled:
        if unknown := [name for name in sample.expect if name not in outputs]:
            raise InputError(
                f"{path}: sample `{sample.name}`: no output `{unknown[0]}`",
                hint=nearest(unknown[0], outputs),
            )
    return labelled


def _read_lines(path: Path, signature: Signature) -> list[Sample]:
    lines = read_text(path).splitlines()
    return [
        _read_line(line, f"{path}:{number}", signature)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _read_line(line: str, where: str, signature: Signature) -> Sample:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}", hint=f"write {_LINE}") from error
    if not isinstance(data, dict) or data.keys() != {"inputs", "label"}:
        raise InputError(f"{where}: not a labelled request", hint=f"write {_LINE}")
    inputs, label = data["inputs"], data["label"]
    if not isinstance(inputs, dict):
        raise InputError(f"{where}: `inputs` is not a mapping from tensor names to values")
    if not isinstance(label, dict):
        if len(signature.outputs) != 1:
            names = ", ".join(f"`{spec.name}`" for spec in signature.outputs)
            raise InputError(
                f"{where}: `label` does not say of which output it is: there are {names}",
                hint=f'write "label": {{"{signature.outputs[0].name}": ...}}',
            )
        label = {signature.outputs[0].name: label}
    return Sample(where.rpartition(":")[2], dict(inputs), dict(inputs), 1, label)


@dataclass(slots=True)
class Graded:
    """Answers and labels by output, one entry an answer."""

    answers: dict[str, list[Array]] = field(default_factory=dict)
    labels: dict[str, list[Any]] = field(default_factory=dict)
    failed: int = 0

    def add(self, sample: Sample, outputs: Mapping[str, Array]) -> None:
        for name, label in sample.expect.items():
            if name in outputs:
                self.answers.setdefault(name, []).append(outputs[name])
                self.labels.setdefault(name, []).append(label)


def grade(samples: Sequence[Sample], ask: Callable[[int], InferResponse]) -> dict[str, Any]:
    """Ask for each sample (`ask` gets its number), and score the answers of each output.

    Raises WorldError when no answer comes at all; a request that Triton refuses has failed.
    """
    graded = Graded()
    for number, sample in enumerate(samples):
        try:
            answer = ask(number)
        except InferenceError:
            graded.failed += 1
        else:
            graded.add(sample, answer.outputs)
    scored = {name: _scored(graded.answers[name], graded.labels[name]) for name in graded.answers}
    return {"samples": len(samples), "failed": graded.failed, "outputs": scored}


def _scored(answers: Sequence[Array], labels: Sequence[Any]) -> dict[str, Any]:
    """By what an output is: a class (a text of one word, a whole number, or one number for each
    class), a text, or numbers, which are right or wrong.
    """
    if _is_class(answers, labels):
        got, want = _classes(answers), np.array(labels)
        right = accuracy(got, want)
        return {"kind": "classes", "accuracy": _estimate(right), "macro_f1": macro_f1(got, want)}
    if _is_text(answers, labels):
        return _scored_texts(answers, labels)
    agree = [not compare({"y": a}, {"y": w}) for a, w in zip(answers, labels, strict=True)]
    return {"kind": "numbers", "accuracy": _estimate(np.array(agree))}


def _scored_texts(answers: Sequence[Array], labels: Sequence[Any]) -> dict[str, Any]:
    got, want = _objects([_words(a) for a in answers]), _objects([_words(w) for w in labels])
    return {
        "kind": "text",
        "accuracy": _estimate(np.array(got == want, dtype=np.bool_)),
        "bleu": _estimate(bleu(got, want)),
        "rouge_l": _estimate(rouge(got, want)),
    }


def macro_f1(got: Array, want: Array) -> float:
    """The mean over all classes among labels and answers; one that never hits has 0."""
    classes = set(want.tolist()) | set(got.tolist())
    return round(float(np.mean([_f1(got == one, want == one) for one in classes])), 6)


def _f1(got: Scores, want: Scores) -> float:
    both = int((got & want).sum())
    return 2 * both / (int(got.sum()) + int(want.sum()))


def _is_text(answers: Sequence[Array], labels: Sequence[Any]) -> bool:
    return all(a.dtype.kind == "O" for a in answers) and all(
        not isinstance(label, dict) for label in labels
    )


def _is_class(answers: Sequence[Array], labels: Sequence[Any]) -> bool:
    if all(isinstance(label, str) for label in labels):
        return all(a.size == 1 for a in answers) and not any(" " in label for label in labels)
    if not all(isinstance(label, int) for label in labels):
        return False
    if all(a.dtype.kind in "iub" for a in answers):
        return all(a.size == 1 for a in answers)
    return all(a.dtype.kind == "f" and a.size > 1 for a in answers)


def _classes(answers: Sequence[Array]) -> Array:
    if answers[0].dtype.kind == "f":
        return np.array([int(a.reshape(-1).argmax()) for a in answers])
    return np.array([a.reshape(-1)[0] for a in answers])


def _words(value: Any) -> str:
    return " ".join(
        item.decode(errors="replace") if isinstance(item, bytes) else str(item)
        for item in np.asarray(value, dtype=object).reshape(-1)
    )


def _objects(texts: Sequence[str]) -> Array:
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def _estimate(scores: Scores) -> dict[str, float]:
    """A mean with its 95 % interval."""
    found = estimate(scores)
    return {name: round(getattr(found, name), 6) for name in ("value", "low", "high")}
