"""Python models run in processes of their own. A dead one is reported and its model reloaded."""

from __future__ import annotations

import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from mmctl.errors import WorldError
from mmctl.server.control import Control, Refusal
from mmctl.server.supervisor import children_of, has_ended

PROGRAM = "triton_python_backend_stub"
CHECK_S = 0.5
RELOADS = 3
WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Stub:
    """The process of one instance of one version of a Python model."""

    model: str
    version: str
    instance: str


class Budget:
    """At most `count` reloads of a model in `window_s`: what dies again and again stays dead."""

    def __init__(self, count: int = RELOADS, window_s: float = WINDOW_S) -> None:
        self._count, self._window_s = count, window_s
        self._times: dict[str, deque[float]] = {}

    def take(self, model: str, now_s: float) -> bool:
        times = self._times.setdefault(model, deque())
        while times and now_s - times[0] >= self._window_s:
            times.popleft()
        if len(times) >= self._count:
            return False
        times.append(now_s)
        return True


def parse_stub(command: bytes) -> Stub | None:
    """The stub of a command line: program, file of the model, ..., name of the instance, ..."""
    arguments = command.decode(errors="replace").split("\0")
    if Path(arguments[0]).name != PROGRAM or len(arguments) < 9:
        return None
    *_, model, version, _ = Path(arguments[1]).parts
    return Stub(model, version, instance=arguments[8])


def read_stubs(server: int) -> dict[int, Stub]:
    """The living stubs of a server by process number."""
    stubs = {}
    for pid in children_of(server):
        with contextlib.suppress(OSError):
            stub = parse_stub(Path(f"/proc/{pid}/cmdline").read_bytes())
            if stub and not has_ended(pid):
                stubs[pid] = stub
    return stubs


class StubWatch:
    """Looks after the stubs of the server with process number `server`."""

    def __init__(
        self, server: int, served: Path, control: Control, say: Callable[[str], None]
    ) -> None:
        self.deaths: list[str] = []
        """Models whose stubs died, in order."""
        self._server, self._served, self._control, self._say = server, served, control, say
        self._budget = Budget()
        self._known: dict[int, Stub] = {}
        self._suspects: list[Stub] = []
        self._stop = Event()
        self._thread = Thread(target=self._run, name="stub watch", daemon=True)

    def start(self) -> None:
        """A stub that dies right now is missed at the first round already."""
        self._known = read_stubs(self._server)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def look(self) -> None:
        """One round. A death is believed at the second look: a load ends stubs as well, and what
        it puts in their place shows only a moment later. What was reloaded is looked at once more:
        its new process may be dead before it was ever seen.
        """
        live = read_stubs(self._server)
        counts = Counter((stub.model, stub.version) for stub in live.values())
        reloaded = []
        for dead in {(stub.model, stub.version): stub for stub in self._suspects}.values():
            if counts[dead.model, dead.version] < self._wanted(dead.model, dead.version):
                self.deaths.append(dead.model)
                self._say(f"a process of `{dead.model}` has died (instance `{dead.instance}`)")
                if self._reload(dead):
                    reloaded.append(dead)
        gone = [stub for pid, stub in self._known.items() if pid not in live]
        self._suspects = [*reloaded, *gone]
        self._known = live

    def _run(self) -> None:
        while not self._stop.wait(CHECK_S):
            # Without an answer the server is on its way out, which is not ours to report.
            with contextlib.suppress(WorldError):
                self.look()

    def _wanted(self, model: str, version: str) -> int:
        """How many stubs a version should have: none unless it is READY. Triton refuses to say
        while its tree changes below it, and then nobody is missed.
        """
        try:
            states = [s for s in self._control.index() if (s.name, s.version) == (model, version)]
            ready = any(state.ready for state in states)
            return self._control.instances(model, version) if ready else 0
        except Refusal:
            return 0

    def _reload(self, dead: Stub) -> bool:
        """Triton loads what has moved: so the version folder's time moves, its files do not."""
        if not self._budget.take(dead.model, monotonic()):
            self._say(f"`{dead.model}` keeps dying ({RELOADS} reloads in a minute): given up")
            return False
        begin = monotonic()
        try:
            os.utime(self._served / dead.model / dead.version)
            self._control.load(dead.model)
        except (OSError, Refusal) as error:
            self._say(f"`{dead.model}` cannot be reloaded: {error}")
            return False
        self._say(f"`{dead.model}` is reloaded after {monotonic() - begin:.1f} s")
        return True
