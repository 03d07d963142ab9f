"""How long `mmctl check` takes on a large repository: 1,000 models, 100 ensembles of them.

Runs the command as a user does, in a process of its own each time, and prints wall time, CPU time
and peak memory: median and 95 % interval of the runs, beside an empty Python that imports the
libraries of the command. Exits 1 when the median is above the bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_measure import estimate, interleaved

SECONDS = 2.0
MEBIBYTES = 300.0

LEAF = """name: "{name}"
backend: "{backend}"
max_batch_size: 8
input [
  {{ name: "x" data_type: TYPE_FP32 dims: [ {size} ] }},
  {{ name: "mask" data_type: TYPE_INT64 dims: [ -1 ] optional: true }}
]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ {size} ] }} ]
dynamic_batching {{ preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 1000 }}
instance_group [ {{ kind: KIND_CPU count: 2 }} ]
parameters {{ key: "mode" value: {{ string_value: "fast" }} }}
version_policy {{ latest {{ num_versions: 1 }} }}
"""

STEP = """    {{
      model_name: "{model}" model_version: -1
      input_map {{ key: "x" value: "{source}" }}
      output_map {{ key: "y" value: "{target}" }}
    }}"""

ENSEMBLE = """name: "{name}"
platform: "ensemble"
max_batch_size: 8
input [ {{ name: "start" data_type: TYPE_FP32 dims: [ 16 ] }} ]
output [ {{ name: "end" data_type: TYPE_FP32 dims: [ 16 ] }} ]
ensemble_scheduling {{
  step [
{steps}
  ]
}}
"""

CODE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([request.inputs()[0]]) for request in requests]
"""


@dataclass(frozen=True)
class Run:
    """What one run of the command took: seconds, seconds of CPU, mebibytes at most."""

    wall: float
    cpu: float
    memory: float


def write_repository(root: Path, models: int, ensembles: int, steps: int) -> None:
    for number in range(models):
        name = f"model_{number:04}"
        python = number % 2 == 0
        folder = root / name / "1"
        folder.mkdir(parents=True)
        backend = "python" if python else "pytorch"
        config = LEAF.format(name=name, backend=backend, size=16)
        (root / name / "config.pbtxt").write_text(config)
        (folder / ("model.py" if python else "model.pt")).write_text(CODE if python else "")
    for number in range(ensembles):
        name = f"flow_{number:03}"
        (root / name / "1").mkdir(parents=True)
        tensors = ["start", *(f"t{at}" for at in range(1, steps)), "end"]
        calls = [
            STEP.format(
                model=f"model_{(number * steps + at) % models:04}",
                source=tensors[at],
                target=tensors[at + 1],
            )
            for at in range(steps)
        ]
        config = ENSEMBLE.format(name=name, steps=",\n".join(calls))
        (root / name / "config.pbtxt").write_text(config)


def measure(command: Sequence[str]) -> Run:
    """Raises SystemExit when the command says anything but yes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    output = process.stdout.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{output[:2000]}")
    return Run(time.perf_counter() - start, _cpu(used), used.ru_maxrss / 1024)


def _cpu(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--ensembles", type=int, default=100)
    parser.add_argument("--steps", type=int, default=8, help="steps of each ensemble")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "models"
        write_repository(root, options.models, options.ensembles, options.steps)
        imports = "from tritonclient.grpc import model_config_pb2; import pydantic, typer, yaml"
        empty = [sys.executable, "-c", imports]
        command = [sys.executable, "-m", "mmctl", "check", str(root)]
        pairs = list(interleaved(options.runs, lambda: measure(empty), lambda: measure(command)))
    rows = {
        "wall s": estimate([run.wall for _, run in pairs]),
        "CPU s": estimate([run.cpu for _, run in pairs]),
        "memory MiB": estimate([run.memory for _, run in pairs]),
        "wall s of the imports": estimate([run.wall for run, _ in pairs]),
        "CPU s of the imports": estimate([run.cpu for run, _ in pairs]),
    }
    if options.json:
        print(json.dumps({"schema": 1, "median": {name: row.median for name, row in rows.items()}}))
    else:
        print(f"{options.models} models, {options.ensembles} ensembles, {options.runs} runs")
        for name, row in rows.items():
            print(f"{name:22} {row.median:8.2f}   ({row.low:.2f} to {row.high:.2f})")
    within = rows["wall s"].median < SECONDS and rows["memory MiB"].median < MEBIBYTES
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
