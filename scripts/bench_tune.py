"""`mmctl tune` beside a grid of 96 settings, each measured: a pipeline of six models that sleep.

All settings of the grid are served at once: each model once for each of its settings, and an
ensemble for each of the 96 ways to combine them, so that none has to be loaded again. Each is
measured by a short ramp of load: the rate until which p95 kept the promise. Ramps are short, so
the best of 96 is a lucky one as well; the best and what tune chose are then measured again, in
turns, and that ratio counts. It should be 95 % at least, with at most ten trials.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench_load_rates import rate_within
from sleepers import SAMPLE_INPUTS, write_sleeper, write_sleepers

from mmctl.client.samples import Sample
from mmctl.files import write_text
from mmctl.loadtest.bench import Progress
from mmctl.loadtest.search import Choices, Slo
from mmctl.loadtest.simulate import Setting
from mmctl.server.install import ensure_runtime
from mmctl.server.process import EmbeddedTriton
from mmctl.trials.tune import Options, Outcome, setting_text, tune
from mmctl.workspace import read_workspace

COSTS = {
    "a": (0.020, 0.0),
    "b": (0.050, 0.002),
    "c": (0.030, 0.0),
    "d": (0.040, 0.002),
    "e": (0.025, 0.002),
    "f": (0.060, 0.002),
}
READS = {"a": ["x"], "b": ["a"], "c": ["a"], "f": ["x"], "d": ["b", "c"], "e": ["d", "f"]}
CHOICES = {
    "a": Choices((1,), (1, 2)),
    "b": Choices((1, 4), (1,), (0.0, 0.03)),
    "c": Choices((1,), (1, 2)),
    "d": Choices((1, 4)),
    "e": Choices((1, 4)),
    "f": Choices((1, 8)),
}
SLO = Slo("p95", 95.0, 0.4)
MOST = 80.0
"""Requests a second at the end of a ramp: above what any setting can do."""
INPUT = 'input [{{name: "{}", data_type: TYPE_FP32, dims: [1]}}]\n'
OUTPUT = 'output [{name: "y", data_type: TYPE_FP32, dims: [1]}]\n'

Grid = dict[str, dict[str, Setting]]
"""By ensemble: the setting of each model."""


def write_grid(root: Path) -> Grid:
    for model, choices in CHOICES.items():
        for setting in choices:
            name = variant(model, setting)
            delay = round(setting.delay * 1e6)
            batching = f"dynamic_batching {{max_queue_delay_microseconds: {delay}}}\n"
            write_sleeper(
                root,
                name,
                *COSTS[model],
                inputs="xz"[: len(READS[model])],
                max_batch=setting.max_batch,
                instances=setting.instances,
                more=batching if setting.max_batch > 1 else "",
            )
    grid: Grid = {}
    for number, settings in enumerate(itertools.product(*CHOICES.values())):
        grid[f"grid_{number}"] = dict(zip(CHOICES, settings, strict=True))
        write_ensemble(root, f"grid_{number}", grid[f"grid_{number}"])
    return grid


def variant(model: str, setting: Setting) -> str:
    return f"{model}_{setting.max_batch}_{setting.instances}_{round(setting.delay * 1000)}"


def write_ensemble(root: Path, name: str, settings: Mapping[str, Setting]) -> None:
    steps = []
    for model, reads in READS.items():
        inputs = "".join(
            f'input_map {{key: "{key}" value: "{"x" if source == "x" else f"{source}_y"}"}} '
            for key, source in zip("xz", reads, strict=False)
        )
        output = "y" if model == "e" else f"{model}_y"
        steps.append(
            f'{{model_name: "{variant(model, settings[model])}" model_version: -1 {inputs}'
            f'output_map {{key: "y" value: "{output}"}}}}'
        )
    write_text(
        root / name / "config.pbtxt",
        f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: 1\n'
        f"{INPUT.format('x')}{OUTPUT}"
        f"ensemble_scheduling {{step [{', '.join(steps)}]}}\n",
    )
    (root / name / "1").mkdir(exist_ok=True)


def tuned(folder: Path, seconds: float, trials: int) -> Outcome:
    """What tune makes of the same pipeline, from the smallest settings on."""
    nodes = {model: (model, reads, "") for model, reads in READS.items()}
    smallest = "batching: {max_batch: 1}\n"
    write_sleepers(folder, COSTS, {"all": nodes}, dict.fromkeys(COSTS, smallest))
    samples = [Sample("one", {}, SAMPLE_INPUTS, 1, {})]
    options = Options(SLO, trials, seconds, max_batch=8, max_instances=2, choices=CHOICES)
    silent = Progress(lambda *_: None)
    return tune(read_workspace(folder), "all", samples, options, print, silent)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each ramp of the grid")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--again", type=int, default=5, help="how often the two are compared")
    parser.add_argument("--json", type=Path, help="write all of it here")
    arguments = parser.parse_args()
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = tuned(Path(folder) / "tuned", 3.0, arguments.trials)
        chosen = {name: outcome.best.settings[name] for name in CHOICES}
        print(f"tune: {len(outcome.trials)} trials, {time.monotonic() - began:.0f} s", flush=True)
        grid = write_grid(Path(folder) / "grid")
        name = next(name for name, settings in grid.items() if settings == chosen)
        runtime = ensure_runtime(read_workspace(Path(__file__).parent.parent), print)
        with EmbeddedTriton.start(
            runtime, Path(folder) / "grid", state=Path(folder), private=True, say=print
        ) as server:

            def rate(ensemble: str, seconds: float, seed: int) -> float:
                return rate_within(
                    server.grpc, ensemble, MOST, SLO.seconds, SLO.percent, seconds, seed
                )

            began = time.monotonic()
            rates = {ensemble: rate(ensemble, arguments.seconds, 1) for ensemble in grid}
            print(f"grid: {len(grid)} settings, {time.monotonic() - began:.0f} s", flush=True)
            best = max(rates, key=lambda ensemble: rates[ensemble])
            pairs = [
                (rate(name, 2 * arguments.seconds, seed), rate(best, 2 * arguments.seconds, seed))
                for seed in range(2, 2 + arguments.again)
            ]
    better = sum(found > rates[name] for found in rates.values())
    ratio = statistics.median(one / two for one, two in pairs)
    print(f"best of the grid: {rates[best]:.1f} answers/s: {told(grid[best])}")
    print(f"tune's choice:    {rates[name]:.1f} answers/s, place {better + 1}: {told(chosen)}")
    print(f"smallest setting: {rates['grid_0']:.1f} answers/s")
    print(f"again, in turns: {ratio:.3f} of the best (median of {len(pairs)}: "
          f"{', '.join(f'{one:.1f}/{two:.1f}' for one, two in pairs)})")  # fmt: skip
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    if arguments.json:
        rows = [{"settings": told(grid[e]), "rate": found} for e, found in rates.items()]
        values = {"grid": rows, "tune": told(chosen), "trials": len(outcome.trials)}
        arguments.json.write_text(json.dumps({**values, "ratio": ratio}, indent=2) + "\n")
    return 0 if ratio >= 0.95 and len(outcome.trials) <= arguments.trials else 1


def told(settings: Mapping[str, Setting]) -> str:
    return ", ".join(f"{model} {setting_text(setting)}" for model, setting in settings.items())


if __name__ == "__main__":
    sys.exit(main())
