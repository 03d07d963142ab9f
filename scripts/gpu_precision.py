"""What FP16 and INT8 give on this machine's NVIDIA GPU: latency, throughput, and how far from FP32.

    scripts/gpu_precision                          both models, under 8 minutes
    scripts/gpu_precision --model resnet50 --json  one of them, as JSON

Models: `resnet50`, its topology with random weights, for no real ones can be had; and `minilm`, the
repository's own, once it is built. Each is converted by mmctl's stages and runs as a TensorRT
engine where the module `tensorrt` and PyTorch with CUDA are, else in ONNX Runtime's TensorRT
provider. Inputs are drawn, from a fixed seed.

Promises, and exit 1 when one is broken: an engine answers as its own ONNX file does on the CPU, and
FP16 and INT8 are faster than FP32 at the large batch. The distance from FP32 is told, not promised:
with drawn weights and inputs it says nothing about labels. A file that is far from FP32 on the CPU
already is left out, as mmctl would refuse it: INT8 of MiniLM is one.

Without a GPU it says "skipped: no GPU" and exits 0; with one and nothing to run on it, exit 3.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from gpu_measure import (
    BATCHES,
    COLUMNS,
    Row,
    broken_promises,
    measure,
    open_runner,
    too_far,
)
from gpu_models import MODELS, Variant, variants_of

from mmctl.errors import InputError, MmctlError, Refused
from mmctl.exporters.tensorrt.gpus import local_capabilities

BUDGET_S = 480
say = partial(print, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    capabilities = local_capabilities()
    if not capabilities:
        print("skipped: no GPU")
        return 0
    signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(BUDGET_S)
    try:
        with tempfile.TemporaryDirectory(prefix="mmctl-gpu-") as folder:
            rows = _rows(options.model or list(MODELS), Path(folder))
    except MmctlError as error:
        say(f"error: {error}" + (f"\n\nhint: {error.hint}" if error.hint else ""))
        return error.exit_code
    broken = broken_promises(rows)
    if options.json:
        shown = {"gpu": capabilities[0], "rows": [asdict(row) for row in rows], "broken": broken}
        print(json.dumps(shown, indent=2))
    else:
        print(f"GPU of compute capability {capabilities[0]}; medians of one run", COLUMNS, sep="\n")
        print(*rows, sep="\n")
        print(*(f"BROKEN: {line}" for line in broken), sep="\n")
    return 1 if broken else 0


def _too_slow(_number: int, _frame: object) -> None:
    raise Refused(f"took longer than {BUDGET_S} s, which is promised")


def _rows(models: Sequence[str], folder: Path) -> list[Row]:
    rows: list[Row] = []
    for model in models:
        started = time.monotonic()
        made = variants_of(model, folder)
        say(f"{model}: {len(made)} files in {time.monotonic() - started:.0f} s")
        for variant in made:
            rows += _measured(model, variant, made[0])
    return rows


def _measured(model: str, variant: Variant, fp32: Variant) -> list[Row]:
    if refused := too_far(variant, fp32):
        say(f"{model} {variant.precision}: {refused}, so mmctl makes no engine of it")
        return []
    started = time.monotonic()
    try:
        runner = open_runner(variant)
    except InputError as error:
        say(f"{model} {variant.precision}: no engine: {error.message}")
        return []
    say(f"{model} {variant.precision}: {runner.title} in {time.monotonic() - started:.0f} s")
    return [measure(model, variant, fp32, runner, batch) for batch in BATCHES]


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
