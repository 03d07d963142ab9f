"""How a variant answers, against FP32 and the limits of model.yaml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mmctl.errors import InputError, Refused
from mmctl.exporters.accuracy.gate import Files, measure
from mmctl.exporters.accuracy.judge import Judged
from mmctl.exporters.accuracy.options import Precision
from mmctl.exporters.accuracy.rules import Rules
from mmctl.exporters.held_out import rules_of
from mmctl.exporters.onnx_file import first_line, open_session, runner_of
from mmctl.exporters.spec import Model
from mmctl.exporters.traced import Runner
from mmctl.trials.compare.data import Samples
from mmctl.trials.compare.sessions import open_on
from mmctl.trials.compare.table import Accuracy, Device


class Judge:
    """Judges variants of one model, all on the same samples."""

    def __init__(self, model: Model, fp32: Path, samples: Samples) -> None:
        session = open_session(fp32)
        self.fp32 = runner_of(session)
        self.outputs = [output.name for output in session.get_outputs()]
        self.model = model
        self.samples = samples

    def of_fp32(self) -> tuple[Accuracy, ...]:
        """What the metrics say of FP32 itself: on labels a score, else that it is as it is."""
        judged = measure(self._files(self.fp32), self._rules("fp32"), self.samples.data.held_out)
        return tuple(_certain(accuracy_of(one)) for one in judged)

    def judge(
        self, path: Path, precision: Precision, device: Device
    ) -> tuple[tuple[Accuracy, ...], str]:
        """What the metrics say, and why the variant is refused whatever they say."""
        files = self._files(self._runner(path, device))
        try:
            judged = measure(files, self._rules(precision), self.samples.data.held_out)
        except Refused as error:
            return (), error.message
        return tuple(map(accuracy_of, judged)), ""

    def _files(self, variant: Runner) -> Files:
        file = self.model.file
        return Files(variant, self.fp32, self.outputs, file.batched, file.batching.max_batch)

    def _rules(self, precision: Precision) -> Rules:
        """Of drawn samples there are no labels, which the user's metric may be about."""
        if not self.samples.declared:
            return Rules(precision, classes=frozenset(self.model.file.labels))
        return replace(rules_of(self.model), precision=precision)

    def _runner(self, path: Path, device: Device) -> Runner:
        if device == "cpu":
            return runner_of(open_session(path))
        most = self.model.file.batching.max_batch
        try:
            return runner_of(open_on(device, path, 1, self.samples.request, most))
        except Exception as error:  # ONNX Runtime's have no common base
            raise InputError(first_line(error)) from error


def accuracy_of(judged: Judged) -> Accuracy:
    """On labels the variant's score, which is what it lost away from FP32's."""
    found = judged.found
    metric = f"{judged.metric} of {judged.output}"
    if not judged.is_drop or judged.fp32 is None:
        limit = f"at least {judged.limit:.4g}"
        numbers = (found.value, found.low, found.high)
    else:
        limit = f"at most {judged.limit:.4g} points below FP32's {judged.fp32:.4g}"
        numbers = (
            judged.fp32 - found.value / 100,
            judged.fp32 - found.high / 100,
            judged.fp32 - found.low / 100,
        )
    value, low, high = numbers
    return Accuracy(metric, value, low, high, judged.is_within, limit, judged.doubt)


def _certain(one: Accuracy) -> Accuracy:
    return replace(one, low=one.value, high=one.value, doubt="")
