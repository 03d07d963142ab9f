"""Judges generated repositories by the checker and by the embedded Triton, and tells where the two
disagree. Exits 1 when they do where no defect of the server is known.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from differential_cases import Case, Config, cases, incomplete_cases, pool

from mmctl.diagnostics import Finding, Severity
from mmctl.errors import WorldError
from mmctl.lint.checker import check_repository
from mmctl.lint.repository import Repository, Target, read_model, read_repository
from mmctl.server.control import Refusal
from mmctl.server.install import ensure_runtime
from mmctl.server.process import EmbeddedTriton
from mmctl.triton.releases import parse_release
from mmctl.workspace import read_workspace

LOAD_S = 30.0

TARGET = Target(release=parse_release("24.10"), gpus=0)

SERVER_ACCEPTS = {
    "C013": "Triton takes the same tensor name twice and answers one of them",
    "E009": "a step may write an ensemble input: requests fail then",
    "E013": "an optional input of an ensemble that a step needs: it fails when it is left out",
    "R004": "a label file that is missing is found when classes are asked for",
    "S001": "a response cache on a model that cannot have one is ignored",
}
"""Errors of the checker that a server only shows later, or never: its defects, not ours."""


@dataclass(frozen=True)
class Verdict:
    """What both said of a case. `said` is the server's reason when it refused, None when the case
    killed it: that is a defect of the server, and nobody's verdict.
    """

    case: Case
    loads: bool
    said: str | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    @property
    def agrees(self) -> bool:
        if self.said is None:
            return True
        if self.loads:
            return all(finding.code in SERVER_ACCEPTS for finding in self.errors)
        return bool(self.errors)

    def text(self) -> str:
        server = "READY" if self.loads else self.said or "died"
        lines = [self.case.text(), f"server:  {server}", "checker:"]
        return "\n".join([*lines, *(f"  {finding.text()}" for finding in self.findings)])


class Judges:
    """A server with `models` loaded, and the checker's view of the same folder.

    `start` starts a server on the repository without a model: again after a case killed it.
    """

    def __init__(
        self,
        start: Callable[[], EmbeddedTriton],
        repository: Path,
        models: Mapping[str, Config],
    ) -> None:
        self._start = start
        self._repository = repository
        for name, config in models.items():
            config.write(repository / name)
        read, _ = read_repository(repository, "", TARGET)
        self._pool = dict(read.models)
        self._server = self._started()

    def judge(self, case: Case) -> Verdict:
        """Write the case, ask both, and remove it again."""
        case.write(self._repository)
        try:
            findings = self._check(case)
            loads, said = self._load(case)
        except WorldError:
            case.remove(self._repository)
            if not self._has_died():
                raise
            self._server.stop(at_once=True)
            self._server = self._started()
            return Verdict(case, False, None, findings)
        with suppress(Refusal):
            self._server.control.unload(case.name)
        case.remove(self._repository)
        return Verdict(case, loads, said, findings)

    def _has_died(self) -> bool:
        """A connection breaks a moment before the process is gone."""
        until = time.monotonic() + 5
        while self._server.alive and time.monotonic() < until:
            time.sleep(0.05)
        return not self._server.alive

    def _started(self) -> EmbeddedTriton:
        server = self._start()
        for name in self._pool:
            server.load(name)
        return server

    def _check(self, case: Case) -> tuple[Finding, ...]:
        own = {name: read_model(self._repository / name, name, TARGET) for name in case.folders}
        models = {**self._pool, **own}
        return check_repository(Repository(models, TARGET), list(own))

    def _load(self, case: Case) -> tuple[bool, str]:
        try:
            self._server.load(case.name, timeout_s=LOAD_S)
        except WorldError as error:
            if self._server.alive and error.message.startswith("`"):
                return False, error.message
            raise
        states = [row for row in self._server.control.index() if row.name == case.name]
        return any(row.ready for row in states), "; ".join(row.reason for row in states)


def main() -> int:
    parser = argparse.ArgumentParser(description=" ".join((__doc__ or "").split()))
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--incomplete", type=int, default=20, help="cases that Triton completes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5, help="disagreements to print")
    options = parser.parse_args()
    runs = (
        (False, pool(), list(cases(options.cases, options.seed))),
        (True, {}, list(incomplete_cases(options.incomplete, options.seed))),
    )
    disagreed = sum(_judge_all(*run, options.show) for run in runs)
    return 1 if disagreed else 0


def _judge_all(
    complete_configs: bool, models: Mapping[str, Config], judged: Iterable[Case], show: int
) -> int:
    """Prints how the two judged; the number of cases where they disagree."""
    workspace = read_workspace(Path(__file__).resolve().parent.parent)
    runtime = ensure_runtime(workspace, print)
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        repository = Path(folder) / "models"
        repository.mkdir()

        def start() -> EmbeddedTriton:
            server = EmbeddedTriton.start(
                runtime,
                repository,
                state=Path(folder) / "state",
                private=True,
                load_all=False,
                complete_configs=complete_configs,
            )
            stack.callback(server.stop, at_once=True)
            return server

        judges = Judges(start, repository, models)
        for verdict in map(judges.judge, judged):
            counts["loads" if verdict.loads else "refused" if verdict.said else "kills"] += 1
            if not verdict.agrees:
                counts["disagree"] += 1
                if counts["disagree"] <= show:
                    print(verdict.text(), end="\n\n")
    number = counts["loads"] + counts["refused"] + counts["kills"]
    print(
        f"{number} {'incomplete ' if complete_configs else ''}cases in "
        f"{time.monotonic() - begin:.0f} s: {counts['loads']} load, {counts['refused']} are "
        f"refused, {counts['kills']} kill the server; the checker disagrees on {counts['disagree']}"
    )
    return counts["disagree"]


if __name__ == "__main__":
    sys.exit(main())
