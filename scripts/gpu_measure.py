"""Runs files on a GPU and measures them; what scripts/gpu_precision promises of the numbers."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gpu_models import LARGEST, Variant

from mmctl.errors import WorldError
from mmctl.exporters.onnx_file import open_session, runner_of
from mmctl.exporters.precision.base import Batch
from mmctl.exporters.tensorrt.builders import InProcess
from mmctl.exporters.tensorrt.spec import PLAN, BuildSpec
from mmctl.files import sha256_file
from mmctl.lint.engines import EngineTarget
from mmctl.tensors import Array
from mmctl.triton.profiles import EDGES, shape_argument
from mmctl.triton.providers import (
    PROVIDERS,
    check_runtimes,
    installed_runtimes,
    require_provider,
)
from mmctl.triton.releases import EMBEDDED, parse_release, parse_version

BATCHES = (1, LARGEST)
WARM_RUNS = 10
RUNS = 50
AS_THE_FILE = {"fp32": 0.9999, "fp16": 0.999, "int8": 0.99}
"""Least cosine between an engine and its own ONNX file on the CPU. FP32 may be TF32 on a GPU."""

NEAR_FP32 = 0.95
"""Least cosine to FP32, on the CPU, of a file that is worth an engine."""

COLUMNS = (
    f"{'model':<9} {'precision':<9} {'batch':>5} {'p50 ms':>8} {'p99 ms':>8} {'rows/s':>9} "
    f"{'cosine to FP32':>15} {'to its file':>12}  on"
)


class Runner(Protocol):
    """`title` says what runs the file."""

    @property
    def title(self) -> str: ...

    def run(self, inputs: Batch) -> Array:
        """The first output; returns when the GPU is done and the output is in memory."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; cosines are the least over the rows of a batch."""

    model: str
    precision: str
    batch: int
    p50_ms: float
    p99_ms: float
    rows_per_s: float
    cosine_fp32: float
    cosine_file: float
    on: str

    def __str__(self) -> str:
        return (
            f"{self.model:<9} {self.precision:<9} {self.batch:>5} {self.p50_ms:>8.2f} "
            f"{self.p99_ms:>8.2f} {self.rows_per_s:>9.0f} {self.cosine_fp32:>15.5f} "
            f"{self.cosine_file:>12.5f}  {self.on}"
        )


def measure(model: str, variant: Variant, fp32: Variant, runner: Runner, batch: int) -> Row:
    inputs = variant.draw(np.random.default_rng(2), batch)
    times_ms, answer = _timed(lambda: runner.run(inputs))
    p50 = statistics.median(times_ms)
    return Row(
        model,
        variant.precision,
        batch,
        p50_ms=p50,
        p99_ms=float(np.percentile(times_ms, 99)),
        rows_per_s=batch / p50 * 1000,
        cosine_fp32=_cosine(answer, on_cpu(fp32.path, inputs)),
        cosine_file=_cosine(answer, on_cpu(variant.path, inputs)),
        on=runner.title,
    )


def broken_promises(rows: Sequence[Row]) -> list[str]:
    """In words; empty when all are kept. Nothing measured is a broken promise, too."""
    if not rows:
        return ["nothing was measured"]
    return [*_far_from_the_file(rows), *_slower_than_fp32(rows)]


def too_far(variant: Variant, fp32: Variant) -> str | None:
    """Why a file is not worth an engine; None when it is."""
    inputs = variant.draw(np.random.default_rng(2), BATCHES[0])
    found = _cosine(on_cpu(variant.path, inputs), on_cpu(fp32.path, inputs))
    return f"cosine {found:.3f} to FP32 on the CPU" if found < NEAR_FP32 else None


def on_cpu(path: Path, inputs: Batch) -> Array:
    return np.asarray(runner_of(open_session(path))(inputs)[0])


def open_runner(variant: Variant) -> Runner:
    """An engine, or ONNX Runtime's TensorRT provider.

    Raises InputError when TensorRT refuses the file, WorldError when neither is on the machine.
    """
    try:
        trt = importlib.import_module("tensorrt")
        torch = importlib.import_module("torch")
    except ImportError:
        return _Provider(variant)
    return _Engine(variant, trt, torch) if torch.cuda.is_available() else _Provider(variant)


class _Engine:
    """A TensorRT engine, built in this process; PyTorch holds the memory."""

    def __init__(self, variant: Variant, trt: Any, torch: Any) -> None:
        self.title = f"TensorRT {trt.__version__} engine"
        self._torch = torch
        InProcess(trt).build(_spec(variant, trt.__version__), variant.path.parent)
        plan = (variant.path.parent / PLAN).read_bytes()
        self._engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
        if self._engine is None:
            raise WorldError(f"{self.title}: cannot be loaded on this machine")
        self._context = self._engine.create_execution_context()
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        is_output = trt.TensorIOMode.OUTPUT
        self._outputs = [n for n in names if self._engine.get_tensor_mode(n) == is_output]
        self._numpy = {n: trt.nptype(self._engine.get_tensor_dtype(n)) for n in self._outputs}

    def run(self, inputs: Batch) -> Array:
        torch = self._torch
        held = {n: torch.from_numpy(np.asarray(array)).cuda() for n, array in inputs.items()}
        for name, tensor in held.items():
            self._context.set_input_shape(name, tuple(tensor.shape))
        for name in self._outputs:
            empty = np.empty(tuple(self._context.get_tensor_shape(name)), self._numpy[name])
            held[name] = torch.from_numpy(empty).cuda()
        for name, tensor in held.items():
            self._context.set_tensor_address(name, tensor.data_ptr())
        stream = torch.cuda.current_stream()
        stream.synchronize()
        if not self._context.execute_async_v3(stream.cuda_stream):
            raise WorldError(f"{self.title}: a run failed")
        return np.asarray(held[self._outputs[0]].cpu().numpy())


class _Provider:
    """ONNX Runtime with its TensorRT provider, which must not have fallen back to the CPU."""

    title = "ONNX Runtime's TensorRT provider"

    def __init__(self, variant: Variant) -> None:
        check_runtimes(installed_runtimes())
        import onnxruntime

        name = PROVIDERS["tensorrt"].execution_provider
        available = onnxruntime.get_available_providers()
        require_provider("tensorrt", available, used=[name])
        shapes = {
            f"trt_profile_{edge}_shapes": shape_argument(variant.profiles, edge) for edge in EDGES
        }
        session = onnxruntime.InferenceSession(variant.path, providers=[(name, shapes)])
        require_provider("tensorrt", available, session.get_providers())
        self._run = runner_of(session)

    def run(self, inputs: Batch) -> Array:
        return np.asarray(self._run(inputs)[0])


def _spec(variant: Variant, version: str) -> BuildSpec:
    known = ".".join(version.split(".")[:4])
    target = EngineTarget("here", parse_release(EMBEDDED), parse_version(known))
    digest = sha256_file(variant.path)
    return BuildSpec("bench", 1, variant.path.name, digest, variant.profiles, 4096, target)


def _timed(run: Callable[[], Array]) -> tuple[list[float], Array]:
    for _ in range(WARM_RUNS):
        answer = run()
    times_ms = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        answer = run()
        times_ms.append((time.perf_counter() - begin) * 1000)
    return times_ms, answer


def _cosine(got: Array, want: Array) -> float:
    """Of the least similar row; 0 where a value is no number."""
    a = got.reshape(len(got), -1).astype(np.float64)
    b = want.reshape(len(want), -1).astype(np.float64)
    if not np.isfinite(a).all():
        return 0.0
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(axis=1) / np.maximum(lengths, 1e-30)).min())


def _far_from_the_file(rows: Sequence[Row]) -> list[str]:
    return [
        f"{row.model} {row.precision} at batch {row.batch}: cosine {row.cosine_file:.5f} to its "
        f"own file, below {AS_THE_FILE[row.precision]}"
        for row in rows
        if row.cosine_file < AS_THE_FILE[row.precision]
    ]


def _slower_than_fp32(rows: Sequence[Row]) -> list[str]:
    full = {row.model: row for row in rows if row.precision == "fp32" and row.batch == LARGEST}
    return [
        f"{row.model} {row.precision}: {row.rows_per_s:.0f} rows/s at batch {row.batch}, and FP32 "
        f"{full[row.model].rows_per_s:.0f}"
        for row in rows
        if row.precision != "fp32"
        and row.batch == LARGEST
        and row.model in full
        and row.rows_per_s <= full[row.model].rows_per_s
    ]
