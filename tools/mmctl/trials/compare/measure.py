"""One comparison: variants made in a child process, then each measured in one of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from mmctl.errors import InputError, MmctlError, Refused, WorldError
from mmctl.exporters.spec import Model
from mmctl.files import write_json
from mmctl.trials.compare.machine import circumstances
from mmctl.trials.compare.prepare import ANSWER, JOB, Prepared, read_prepared
from mmctl.trials.compare.table import Comparison, Turn, Variant, rows_of
from mmctl.trials.compare.turns import Plan, Player, VariantFails, take_turns

Say = Callable[[str], None]

LAST_LINES = 6


def compare(
    model: Model, *, rounds: int, batch: int | None, threads: int, every: bool, say: Say
) -> Comparison:
    """Make and measure the variants of a model; what it writes is gone when it returns.

    Raises InputError, Refused, WorldError.
    """
    plan = Plan(batches_of(model, batch), rounds)
    located = model.file.source.locate(model.place, say)
    with tempfile.TemporaryDirectory(prefix="mmctl-compare-") as name:
        folder = Path(name)
        say(f"{model.name}: making its variants")
        prepared = _prepare(model, located, folder, every=every)
        notes = list(prepared.notes)
        titles = "; ".join(variant.title for variant in prepared.variants)
        say(f"{model.name}: {titles} take turns, {rounds} rounds")
        with ExitStack() as stack:
            common = (prepared.request_file, threads, max(plan.batches))
            players = [
                (variant, stack.enter_context(_player(folder, variant, *common)))
                for variant in prepared.variants
            ]
            measured = take_turns(players, plan, notes.append)
    return Comparison(
        model=model.name,
        work=prepared.work,
        rows=rows_of(measured),
        notes=notes,
        circumstances={"request": prepared.request, **circumstances(threads), "rounds": rounds},
    )


def batches_of(model: Model, wanted: int | None) -> tuple[int, ...]:
    """What `Plan.batches` are: all powers of two that the model takes, or the one that is wanted.

    Raises InputError.
    """
    most = model.file.batching.max_batch
    if wanted is not None and wanted > most:
        takes = f"at most {most} (`batching: {{max_batch: {most}}}`)" if most else "no batch"
        raise InputError(f"`{model.name}` takes {takes}, not {wanted}")
    if not most:
        return (0,)
    if wanted is not None:
        return (wanted,)
    return tuple(2**power for power in range(most.bit_length()))


def _prepare(model: Model, located: Path, folder: Path, *, every: bool) -> Prepared:
    """Runs `prepare` in a child process: a crash of a native library is then only an error."""
    root = model.place.workspace.root
    job = {"root": str(root), "model": model.name, "located": str(located), "every": every}
    write_json(folder / JOB, job)
    log = folder / "prepare.log"
    with log.open("wb") as output, _child("prepare", [folder], folder, stderr=output) as child:
        code = child.wait()
    if not (folder / ANSWER).is_file():
        raise WorldError(f"making the variants of `{model.name}` {_how(code)}{_said(log)}")
    answer = json.loads((folder / ANSWER).read_text())
    if "error" in answer:
        kinds: dict[int, type[MmctlError]] = {k.exit_code: k for k in (Refused, WorldError)}
        raise kinds.get(answer["exit_code"], InputError)(answer["error"], hint=answer["hint"])
    return read_prepared(answer)


@contextmanager
def _child(
    module: str, arguments: Sequence[str | Path], folder: Path, *, stderr: IO[bytes], **pipes: Any
) -> Iterator[subprocess.Popen[str]]:
    """A module of this room as a process; it never outlives the block, and what libraries write
    into the temporary folder goes into `folder`.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", f"mmctl.trials.compare.{module}", *map(str, arguments)],
        stderr=stderr,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "TMPDIR": str(folder)},
        **{"stdin": subprocess.DEVNULL, "stdout": stderr, **pipes},
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


@contextmanager
def _player(
    folder: Path, variant: Variant, request: str, threads: int, most: int
) -> Iterator[Player]:
    log = folder / f"{variant.name}.log"
    words = [variant.file, request, str(threads), variant.device, str(most)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with log.open("wb") as output, _child("worker", words, folder, stderr=output, **pipes) as child:
        yield ProcessPlayer(child, log)


class ProcessPlayer:
    """A worker process as a player."""

    def __init__(self, child: subprocess.Popen[str], log: Path) -> None:
        self.child = child
        self.log = log

    def load(self) -> float:
        return float(self._ask({"do": "load"})["ms"])

    def run(self, batch: int, times: int) -> Turn:
        answer = self._ask({"do": "run", "batch": batch, "times": times})
        return Turn(tuple(answer["ms"]), answer["cpu_ms"])

    def memory(self) -> int:
        return int(self._ask({"do": "memory"})["bytes"])

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self.child.stdin is not None, "opened with pipes"
        assert self.child.stdout is not None, "opened with pipes"
        try:
            print(json.dumps(order), file=self.child.stdin, flush=True)
            line = self.child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise VariantFails(f"its process {_how(self.child.wait())}{_said(self.log)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise VariantFails(answer["error"])
        return answer


def _how(code: int) -> str:
    return f"died with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _said(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = "".join(f"\n  {line}" for line in lines[-LAST_LINES:])
    return f", after it said:{said}" if said else ""
