"""A node under way in a request: its calls, further tries, and the end of its time.

Part of the runner of the bls form (model.py). All methods of `Work` but those that say otherwise
run in `Run.change`, one at a time for a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_calls import RETRIED, NodeError, error_of
    from mmctl.compiler.shipped.bls_parts import Part, check
    from mmctl.compiler.shipped.bls_plan import Node
    from mmctl.compiler.shipped.bls_rows import Layout
    from mmctl.compiler.shipped.bls_run import Run
    from mmctl.compiler.shipped.bls_threads import Alarm
    from mmctl.compiler.shipped.bls_values import Arrays
else:
    from bls_calls import RETRIED, NodeError, error_of
    from bls_parts import check

NEVER = float("inf")


class Attempt:
    """One call: what a thread of the pool does. Returns what this thread may do next."""

    __slots__ = ("dropped", "overdue", "part", "work")

    def __init__(self, work: Work, part: Part) -> None:
        self.work, self.part, self.overdue = work, part, work.overdue
        self.dropped = False

    def __call__(self) -> Callable[[], Any] | None:
        work, slots, runner = self.work, self.work.node.slots, self.work.run.runner
        if self.dropped:
            for following in slots.free(self):
                runner.pool.submit(following)
            return None
        outcome = work.outcome_of(self.part)
        error = outcome if isinstance(outcome, NodeError) else None
        hopeless, started = slots.finish(self, error)
        for following in started:
            runner.pool.submit(following)
        if error is not None:
            runner.give_up(hopeless, error)
        return work.run.change(lambda: work.answered(self, outcome), inline=True)

    def give_up(self, error: NodeError) -> None:
        """Somebody else has found out that this call will not be answered in time."""
        work = self.work
        work.run.change(lambda: work.given_up(self, error))


class Lookup:
    """Which calls are needed at all: what a thread of the pool finds out before they are made."""

    __slots__ = ("parts", "work")

    def __init__(self, work: Work, parts: list[Part]) -> None:
        self.work, self.parts = work, parts

    def __call__(self) -> Any:
        work, run = self.work, self.work.run
        found: list[Part] = []
        problem: NodeError | None = None
        try:
            for part in self.parts:
                found += run.runner.cache.split(work.node, part, run.said, work.land)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request is answered
            problem = error_of(error)
        return run.change(lambda: work.begin_with(found, problem), inline=True)


class Work:
    """`ends` is when the node's time in this request is over, `overdue` when its model hangs."""

    def __init__(
        self, run: Run, node: Node, layout: Layout, parts: list[Part], deadline: float | None
    ) -> None:
        self.run, self.node, self.layout, self.parts = run, node, layout, parts
        self.started = time.monotonic()
        self.done = False
        self.marks: dict[str, Any] = {}
        """What provenance tells beside the outcome: retried, hedged, late."""
        self._open = len(parts)
        self._alarms: list[Alarm] = []
        own = NEVER if node.timeout_s is None else self.started + node.timeout_s
        self.ends = own if deadline is None else min(own, deadline)
        self.overdue = self.ends if node.timeout_s is None else own

    def begin(self) -> None:
        """Send a call for each part."""
        self._set_alarms()
        for part in self.parts:
            self._try(part, is_first=True)

    def look_up(self) -> None:
        """Send calls for what others have not asked already."""
        self._set_alarms()
        parts, self.parts = self.parts, []
        self.run.ready.append(Lookup(self, parts))

    def begin_with(self, parts: list[Part], problem: NodeError | None = None) -> None:
        self.parts = parts
        self._open = sum(part.outputs is None for part in parts)
        if self.done:
            self.abandon()
        elif problem is not None:
            self._fail(problem)
        elif not self._open:
            self._complete()
        for part in parts:
            if part.outputs is None and not part.waits:
                self._try(part, is_first=True)

    def land(self, part: Part, outputs: Arrays | None) -> None:
        """What came of the call that a part waits for. From any thread, which may hold the lock of
        another request.
        """
        run = self.run
        run.runner.pool.submit(lambda: run.change(lambda: self._landed(part, outputs), inline=True))

    def _landed(self, part: Part, outputs: Arrays | None) -> None:
        part.waits = False
        if self.done or part.outputs is not None:
            return
        part.outputs, part.is_found = outputs, outputs is not None
        if part not in self.parts:
            return  # `begin_with` sees to it
        if outputs is None:
            self._try(part, is_first=True)
        else:
            self._answer(part)

    @property
    def found_rows(self) -> list[int]:
        """Rows for which no call was made, that others asked before."""
        rows: dict[bool, set[int]] = {False: set(), True: set()}
        for part in self.parts if self.node.is_cached else ():
            of = (place if isinstance(place, int) else place[0] for place in part.places)
            rows[part.is_found].update(of)
        return sorted(rows[True] - rows[False])

    def _set_alarms(self) -> None:
        node = self.node
        if self.ends < NEVER:
            self._alarm(self.ends, self._expire)
        if node.timeout_s is not None:
            share = node.timeout_s / (node.retries + 1)
            for turn in range(1, node.retries + 1):
                self._alarm(self.started + turn * share, self._retry_unanswered)
        if node.hedge_s is not None:
            self._alarm(self.started + node.hedge_s, self._hedge)

    def _alarm(self, when: float, change: Callable[[], None]) -> None:
        run = self.run
        self._alarms.append(run.runner.timers.at(when, lambda: run.change(change)))

    def outcome_of(self, part: Part) -> Any:
        """What the model answers: outputs by name, or a NodeError. Takes its time, and no lock."""
        left = 0
        if self.ends < NEVER:
            left = max(1, int((self.ends - time.monotonic()) * 1e6))
        try:
            return check(self.node, part, self.run.call(self.node, part.inputs, left))
        except BaseException as problem:  # noqa: BLE001 - whatever it is, the request is answered
            return error_of(problem)

    def answered(self, attempt: Attempt, outcome: Arrays | NodeError) -> None:
        part = attempt.part
        if attempt not in part.attempts:
            self.node.slots.count_late()
            return
        part.attempts.remove(attempt)
        if isinstance(outcome, NodeError):
            self._again_or_fail(part, outcome)
            return
        part.outputs = outcome
        if part.keys:
            self.run.runner.cache.keep(part, outcome)
        self._answer(part)

    def _answer(self, part: Part) -> None:
        self._drop(part)
        self._open -= 1
        if self._open == 0:
            self._complete()

    def _complete(self) -> None:
        self.close()
        self.run.complete(self)

    def given_up(self, attempt: Attempt, error: NodeError) -> None:
        if attempt in attempt.part.attempts:
            self._fail(error)

    def _try(self, part: Part, *, is_first: bool = False, after: NodeError | None = None) -> None:
        """Send a call for a part, or let it wait for a slot; fail the node if that is in vain,
        because of `after` where there was an error before.
        """
        if self.done:
            return
        attempt, run = Attempt(self, part), self.run
        try:
            if self.node.slots.admit(attempt, is_first=is_first):
                run.ready.append(attempt)
            part.attempts.append(attempt)
        except NodeError as error:
            if not part.attempts:
                self._fail(after or error)

    def _again_or_fail(self, part: Part, error: NodeError) -> None:
        if error.kind in RETRIED and self._may_retry(part):
            self._retry(part, error)
        elif error.kind not in RETRIED or not part.attempts:
            self._fail(error)

    def _may_retry(self, part: Part) -> bool:
        return part.retries < self.node.retries and self.node.slots.pay()

    def _retry(self, part: Part, after: NodeError | None = None) -> None:
        part.retries += 1
        self.marks["retried"] = self.marks.get("retried", 0) + 1
        self._try(part, after=after)

    def _retry_unanswered(self) -> None:
        """A share of the timeout is over: one more try beside those that have not answered."""
        for part in self._unanswered():
            if self._may_retry(part):
                self._retry(part)

    def _hedge(self) -> None:
        for part in self._unanswered():
            self.marks["hedged"] = True
            self._try(part)

    def _unanswered(self) -> list[Part]:
        return [] if self.done else [part for part in self.parts if part.outputs is None]

    def _expire(self) -> None:
        is_own = self.node.timeout_s is not None and self.ends == self.overdue
        key, kind = ("timeout_ms", "timeout") if is_own else ("deadline_ms", "deadline")
        waited = round((time.monotonic() - self.started) * 1000)
        self._fail(NodeError(f"no answer after {waited} ms ({key})", kind))

    def _fail(self, error: NodeError) -> None:
        if not self.done:
            self.abandon()
            self.run.lose(self.node, self.layout, error)

    def abandon(self) -> None:
        """Nobody waits for this node any more."""
        self.close()
        for part in self.parts:
            if part.attempts:
                self.marks["late"] = True
            self._drop(part)

    def close(self) -> None:
        self.done = True
        for alarm in self._alarms:
            alarm.stop()

    def _drop(self, part: Part) -> None:
        """Calls still under way for a part are late from now on."""
        if part.keys:
            self.run.runner.cache.forget(part)
        attempts, part.attempts = part.attempts, []
        for attempt in attempts:
            self.run.runner.give_up(*self.node.slots.drop(attempt))
