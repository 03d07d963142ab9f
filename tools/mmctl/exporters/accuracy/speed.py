"""The speed gate: a converted file is faster than the FP32 file, or it is not worth its risk.

Both run in turns in one process on this machine's CPU, on one thread. CPU time decides, which other
work on the machine disturbs least; the wall's is told beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mmctl.exporters.accuracy.metrics import RESAMPLES
from mmctl.exporters.base import Evidence
from mmctl.exporters.samples import SEED
from mmctl.exporters.traced import Runner
from mmctl.tensors import Array

PAIRS = 15
SHORTEST_S = 0.004
"""A turn repeats the call until it takes this long: clocks have steps, and calls have noise."""
LONGEST_S = 1.0
"""Calls that take longer than this are not measured in a large batch too."""
FASTER = 0.95
"""Of FP32's CPU time: what is nearer is within the noise of another machine."""
LARGE_BATCH = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds of one call."""

    cpu: float
    wall: float


Pair = tuple[Turn, Turn]
"""FP32 and the converted file, one after the other."""
Clock = Callable[[], Turn]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of converted / FP32, with the median's 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Speed:
    """At one batch; 0 is a request without a batch axis."""

    batch: int
    cpu: Ratio
    wall: Ratio

    @property
    def is_faster(self) -> bool:
        return self.cpu.value <= FASTER

    def text(self) -> str:
        at = f"at batch {self.batch}" if self.batch else "a request"
        return (
            f"it takes {self.cpu.value:.2f} of FP32's CPU time {at} "
            f"(95 %: {self.cpu.low:.2f} to {self.cpu.high:.2f})"
        )


def now() -> Turn:
    return Turn(time.process_time(), time.perf_counter())


def batch_sizes(max_batch: int) -> tuple[int, ...]:
    """The one most requests have, and one that fills the kernels; (0,) without a batch axis."""
    return tuple(sorted({min(max_batch, 1), min(max_batch, LARGE_BATCH)}))


def measure_speed(
    fp32: Runner, converted: Runner, batches: Mapping[int, Mapping[str, Array]], clock: Clock = now
) -> list[Speed]:
    """At each batch, smallest first, as long as calls are not too long."""
    found: list[Speed] = []
    for batch, inputs in sorted(batches.items()):
        once = _timed(fp32, inputs, 1, clock)
        if found and once.wall > LONGEST_S:
            break
        found.append(speed_of(batch, _pairs(fp32, converted, inputs, clock)))
    return found


def _pairs(
    fp32: Runner, converted: Runner, inputs: Mapping[str, Array], clock: Clock
) -> list[Pair]:
    """The first turn of each only warms up; every other pair has them the other way round."""
    repeats = []
    for run in (fp32, converted):
        _timed(run, inputs, 1, clock)
        repeats.append(max(1, round(SHORTEST_S / max(1e-6, _timed(run, inputs, 1, clock).wall))))
    pairs = []
    for index in range(PAIRS):
        turns = [(fp32, repeats[0]), (converted, repeats[1])]
        order = turns if index % 2 == 0 else turns[::-1]
        timed = [_timed(run, inputs, count, clock) for run, count in order]
        old, new = timed if index % 2 == 0 else timed[::-1]
        pairs.append((old, new))
    return pairs


def _timed(run: Runner, inputs: Mapping[str, Array], count: int, clock: Clock) -> Turn:
    before = clock()
    for _ in range(count):
        run(inputs)
    after = clock()
    return Turn((after.cpu - before.cpu) / count, (after.wall - before.wall) / count)


def speed_of(batch: int, pairs: Sequence[Pair]) -> Speed:
    return Speed(
        batch,
        cpu=_ratio([new.cpu / max(old.cpu, 1e-9) for old, new in pairs]),
        wall=_ratio([new.wall / max(old.wall, 1e-9) for old, new in pairs]),
    )


def _ratio(values: Sequence[float]) -> Ratio:
    array: npt.NDArray[np.float64] = np.asarray(values)
    random = np.random.default_rng(SEED)
    drawn = array[random.integers(0, len(array), (RESAMPLES, len(array)))]
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return Ratio(float(np.median(array)), float(low), float(high))


def evidence_of_speed(speeds: Sequence[Speed], *, forced: bool) -> Evidence:
    slow = [speed for speed in speeds if not speed.is_faster]
    doubtful = [speed for speed in speeds if speed.is_faster and speed.cpu.high > FASTER]
    return {
        "gate": "speed",
        "hardware": "cpu",
        "limit": FASTER,
        "ratios": [_json(speed) for speed in speeds],
        **({"forced": True, "warning": f"not faster: {slow[0].text()}"} if forced and slow else {}),
        **(
            {"warning": f"too noisy to tell: {doubtful[0].text()}"} if doubtful and not slow else {}
        ),
    }


def _json(speed: Speed) -> Mapping[str, object]:
    cpu, wall = speed.cpu, speed.wall
    return {
        "batch": speed.batch,
        "cpu": round(cpu.value, 3),
        "cpu_interval": [round(cpu.low, 3), round(cpu.high, 3)],
        "wall": round(wall.value, 3),
    }


def one_thread(path: Path) -> Runner:
    """The file in an ONNX Runtime session whose CPU time is the work's alone."""
    import onnxruntime

    from mmctl.exporters.onnx_file import runner_of

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runner_of(
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    )
