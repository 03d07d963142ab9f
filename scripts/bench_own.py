"""What the models of a served tree cost by themselves: the same files, run in this process."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Run = Callable[[Arrays], Arrays]
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """The in-process half of a pair; `cpu_ms` is per request."""

    cpu_ms: float
    per_s: float


@dataclass
class OwnModels:
    """Models of the tree `root` as functions of arrays. `config` asks for a model's config."""

    root: Path
    config: Callable[[str], Config]
    threads: int
    _runs: dict[str, Run] = field(default_factory=dict)

    def run(self, name: str) -> Run:
        if name not in self._runs:
            folder = self._version(name)
            onnx = (folder / "model.onnx").exists()
            self._runs[name] = onnx_run(folder, self.threads) if onnx else step_run(folder)
        return self._runs[name]

    def calls(self, name: str, inputs: Arrays) -> list[tuple[str, Arrays]]:
        """The models that a request to `name` reaches, with what each is given."""
        found: list[tuple[str, Arrays]] = []
        self._follow(name, inputs, found)
        return found

    def measure(self, name: str, row: Arrays, batch: float, seconds: float) -> Side:
        """Runs batches of copies of `row` whose sizes average `batch`."""
        run, stacked, rows = self.run(name), {}, 0
        run(row)
        cpu, begin = time.process_time(), time.perf_counter()
        for turn in itertools.count(1):
            size = round(turn * batch) - rows
            if size not in stacked:
                stacked[size] = {key: np.repeat(value, size, axis=0) for key, value in row.items()}
            run(stacked[size])
            rows += size
            if time.perf_counter() - begin >= seconds:
                break
        cpu, wall = time.process_time() - cpu, time.perf_counter() - begin
        return Side(1000 * cpu / rows, rows / wall)

    def _follow(self, name: str, inputs: Arrays, found: list[tuple[str, Arrays]]) -> Arrays:
        config = self.config(name)
        if config.get("platform") != "ensemble":
            found.append((name, inputs))
            return self.run(name)(inputs)
        known = dict(inputs)
        waiting = list(config["ensemble_scheduling"]["step"])
        while waiting:
            step = next(s for s in waiting if all(t in known for t in s["input_map"].values()))
            waiting.remove(step)
            given = {key: known[tensor] for key, tensor in step["input_map"].items()}
            answer = self._follow(step["model_name"], given, found)
            known |= {tensor: answer[key] for key, tensor in step["output_map"].items()}
        return {entry["name"]: known[entry["name"]] for entry in config["output"]}

    def _version(self, name: str) -> Path:
        folders = (entry for entry in (self.root / name).iterdir() if entry.name.isdigit())
        return max(folders, key=lambda entry: int(entry.name))


def onnx_run(folder: Path, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    file = str(folder / "model.onnx")
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda arrays: dict(zip(names, session.run(names, arrays), strict=True))


def step_run(folder: Path) -> Run:
    """The shipped runner of a Python step, which knows nothing of Triton below its class."""
    before, path = set(sys.modules), list(sys.path)
    spec = importlib.util.spec_from_file_location(f"own_{folder.parent.name}", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plan = json.loads((folder / "step.json").read_text())
    step = module.Step(plan, module.load_function(plan, folder))
    sys.path[:] = path
    for name in set(sys.modules) - before:
        # Another step may have modules of the same names.
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    flat = {tensor.name for tensor in step.outputs if not tensor.dims}

    def run(arrays: Arrays) -> Arrays:
        [answer] = step.run([arrays])
        if isinstance(answer, Exception):
            raise answer
        return {name: rows[:, None] if name in flat else rows for name, rows in answer.items()}

    return run
