"""NVIDIA's perf_analyzer as the engine: the same samples at the same times, sent by other hands.

It gets the samples in a file of its own form and, for an open loop, the times of our schedule; what
counts is the time of each request in its export. Its printed throughput is not used: it divides by
whole seconds where a number of requests is given.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmctl.client.tls import Tls
from mmctl.errors import InputError, WorldError
from mmctl.inference import InferRequest
from mmctl.loadtest.record import Recorder
from mmctl.loadtest.result import Level, Measured
from mmctl.loadtest.schedule import Arrivals, ClosedLoop, Profile, send_times
from mmctl.server.access import GRPC_HEADER
from mmctl.server.runtime import Runtime
from mmctl.tensors import Array
from mmctl.wire import encode

NAME = "perf_analyzer"
WINDOWS = 3
"""It does not report before it has measured so many times."""
ANY_SPREAD = "1000000"
"""In percent. Whether a run was stable is for `bench diff` to say: it has every slice."""
MOST_REQUESTS = 1_000_000
"""It keeps every request in memory, with its answer."""
SPARE_S = 60.0
"""Beyond the load itself, for its start and its last answers."""
_TELLING = re.compile(r"error|fail|cannot|unexpected|mismatch", re.IGNORECASE)
_HINT = "run `mmctl runtime install`, which brings it; or put it on PATH; or take `--engine mmctl`"


@dataclass(frozen=True, slots=True)
class Program:
    """A perf_analyzer, and the variables that it needs."""

    path: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """What is sent where. `batched`: arrays have a batch axis in front."""

    url: str
    requests: Sequence[InferRequest]
    batched: bool


def find_program(runtime: Runtime | None) -> Program:
    """The one on PATH, else that of the runtime. Raises WorldError when there is none."""
    if found := shutil.which(NAME):
        return Program(Path(found), dict(os.environ))
    if runtime is None or not runtime.perf_analyzer.exists():
        raise WorldError(f"there is no `{NAME}` on this machine", hint=_HINT)
    return Program(runtime.perf_analyzer, {**os.environ, **runtime.environment()})


def refuse_unable(profile: Profile, tls: Tls | None, headers: Mapping[str, str]) -> None:
    """Raises InputError for what this program cannot do."""
    if tls is not None or set(headers) - {GRPC_HEADER}:
        raise InputError(
            f"`--engine {NAME}`: the target wants TLS or headers, and it is run without",
            hint="take `--engine mmctl`",
        )
    if not isinstance(profile, ClosedLoop) and profile.expected > MOST_REQUESTS:
        raise InputError(
            f"`--engine {NAME}`: {profile.expected:.0f} requests are due, and it keeps each in "
            f"memory: at most {MOST_REQUESTS}",
            hint="pass less `--seconds`; or take `--engine mmctl`",
        )


def input_data(requests: Sequence[InferRequest], *, batched: bool) -> tuple[dict[str, Any], int]:
    """The document for `--input-data`, and the number for `-b`. Raises InputError.

    Shapes are those of one row: with `-b N` it joins N entries that follow each other. Values are
    the bytes of Triton's protocol in base64, which holds for every type.
    """
    rows = {_rows(request) for request in requests} if batched else {1}
    if len(rows) > 1:
        raise InputError(
            f"`--engine {NAME}`: samples of {', '.join(map(str, sorted(rows)))} rows, and it sends "
            "one number of rows",
            hint="choose samples of one `batch` with `--samples`; or take `--engine mmctl`",
        )
    entries = [entry for request in requests for entry in _entries(request, batched=batched)]
    return {"data": entries}, rows.pop()


def _rows(request: InferRequest) -> int:
    return next((array.shape[0] for array in request.inputs.values()), 1)


def _entries(request: InferRequest, *, batched: bool) -> Iterable[dict[str, Any]]:
    if not batched:
        yield {name: _tensor(array) for name, array in request.inputs.items()}
        return
    for row in range(_rows(request)):
        yield {name: _tensor(array[row]) for name, array in request.inputs.items()}


def _tensor(array: Array) -> dict[str, Any]:
    content = base64.b64encode(encode(array)).decode()
    return {"content": {"b64": content}, "shape": list(array.shape)}


def offer(
    program: Program,
    target: Target,
    profile: Profile,
    arrivals: Arrivals,
    seed: int,
    measured: Measured,
) -> None:
    """Offer the load, one run for each level, which `measured` then has. Raises InputError, and
    WorldError with the program's words when it fails: levels that were whole before are kept.
    """
    data, rows = input_data(target.requests, batched=target.batched)
    with tempfile.TemporaryDirectory(prefix="mmctl-bench-") as name:
        folder = Path(name)
        (folder / "samples.json").write_text(json.dumps(data))
        basis = [
            *("-m", target.requests[0].model, "-u", target.url, "-i", "grpc", "--async"),
            *("-b", str(rows), "--input-data", str(folder / "samples.json")),
        ]
        if isinstance(profile, ClosedLoop):
            for callers in profile.callers:
                words = [*basis, *closed_loop(callers, profile.seconds_each)]
                export = _run(program, words, folder, profile.seconds_each)
                measured.levels.append(read_closed(export, callers))
            return
        due = list(send_times(profile, arrivals, seed))
        (folder / "intervals").write_text(intervals(due))
        words = [*basis, "--request-intervals", str(folder / "intervals")]
        words += ["--request-count", str(len(due))]
        export = _run(program, words, folder, profile.seconds)
        measured.levels.append(read_open(export, due, profile.seconds))


def closed_loop(callers: int, seconds: float) -> list[str]:
    window_ms = max(1, round(seconds / WINDOWS * 1000))
    return [
        *("--concurrency-range", str(callers), "-p", str(window_ms)),
        *("--max-trials", str(WINDOWS), "-s", ANY_SPREAD),
    ]


def intervals(due: Sequence[float]) -> str:
    """Microseconds between requests, a line each. What rounding leaves out is not lost."""
    at = [round(time * 1e6) for time in due]
    return "".join(f"{after - before}\n" for before, after in zip([0, *at], at, strict=False))


def read_closed(export: str, callers: int) -> Level:
    sent, (began, ended) = _requests(export)
    seconds = (ended - began) / 1e9
    recorder = Recorder(seconds)
    for left, answered in sent:
        due = max(0.0, (left - began) / 1e9)
        _note(recorder, due, due, due + (answered - left) / 1e9 if answered else None)
    return Level(callers, recorder, seconds)


def read_open(export: str, due: Sequence[float], seconds: float) -> Level:
    """The n-th request that left is the n-th that was due. The load began when the request that was
    least late would have left on time: latencies and lags count from there, as in our own engine.
    """
    sent, _ = _requests(export)
    began = min((left / 1e9 - time for (left, _), time in zip(sent, due, strict=False)), default=0)
    recorder, last = Recorder(seconds), seconds
    for (left, answered), time in zip(sent, due, strict=False):
        at = answered / 1e9 - began if answered else None
        _note(recorder, time, left / 1e9 - began, at)
        last = max(last, at or 0.0)
    return Level(None, recorder, last)


def _note(recorder: Recorder, due: float, left: float, answered: float | None) -> None:
    recorder.sent(due, left)
    if answered is None:
        recorder.failed(due, "no answer")
    else:
        recorder.answered(due, answered)


def _requests(export: str) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """When each request left and was answered (0: never), in order, and when the load began and
    ended; in ns. Raises WorldError.
    """
    try:
        # Tensors of bytes stand in it as they are, control characters and all.
        experiments = json.loads(export, strict=False)["experiments"]
        [experiment] = experiments
        edges = experiment["window_boundaries"]
        requests = sorted(
            (int(request["timestamp"]), int((request["response_timestamps"] or [0])[-1]))
            for request in experiment["requests"]
        )
        return requests, (int(edges[0]), int(edges[-1]))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise WorldError(
            f"`{NAME}` has run, and its export cannot be read: {error}",
            hint="take `--engine mmctl`; or the perf_analyzer of `mmctl runtime install`",
        ) from error


def _run(program: Program, words: Sequence[str], folder: Path, seconds: float) -> str:
    """The export of one run."""
    export = folder / "export.json"
    export.unlink(missing_ok=True)  # one that is there is refused
    command = [str(program.path), *words, "--profile-export-file", str(export)]
    limit = 2 * seconds + SPARE_S
    try:
        done = subprocess.run(
            command,
            env=dict(program.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
        )
    except OSError as error:
        raise WorldError(f"`{program.path}` cannot be run: {error.strerror}", hint=_HINT) from error
    except subprocess.TimeoutExpired:
        raise WorldError(
            f"`{NAME}` was not done after {limit:.0f} s",
            hint="look whether the server still answers",
        ) from None
    if done.returncode or not export.exists():
        raise WorldError(f"`{NAME}` failed: {failure(done.stdout + done.stderr, done.returncode)}")
    return export.read_text(errors="replace")


def failure(printed: bytes, code: int) -> str:
    """What a run that failed says of itself, without the manual that it prints too."""
    text = printed.decode(errors="replace")
    lines = [line.strip() for line in text.partition("\nUsage:")[0].splitlines()]
    told = [line for line in lines if _TELLING.search(line)]
    return "; ".join(told[:3]) or f"it ended with {code} and said nothing"
