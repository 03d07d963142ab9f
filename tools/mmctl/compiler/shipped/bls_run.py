"""One request on its way through the graph: nodes start when they can, policies are kept.

Part of the runner of the bls form (model.py). Nothing here knows of Triton: `call` runs a model,
`answer` takes what leaves.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.bls_cache import Cache
    from mmctl.compiler.shipped.bls_calls import NodeError, error_of
    from mmctl.compiler.shipped.bls_parts import collect
    from mmctl.compiler.shipped.bls_plan import PROVENANCE, Node, Plan, Route
    from mmctl.compiler.shipped.bls_rows import (
        NO_ROWS,
        Layout,
        answers,
        defaulted,
        has_decided_quorum,
        layout_of,
        merge,
        merge_layout,
        parts_of,
    )  # fmt: skip
    from mmctl.compiler.shipped.bls_story import Story
    from mmctl.compiler.shipped.bls_threads import Pool, Timers, guarded
    from mmctl.compiler.shipped.bls_values import Arrays, Result
    from mmctl.compiler.shipped.bls_work import Attempt, Work
    from mmctl.compiler.shipped.model_counters import FALLBACKS, Counters
else:
    from bls_cache import Cache
    from bls_calls import NodeError, error_of
    from bls_parts import collect
    from bls_plan import PROVENANCE, Node, Plan, Route
    from bls_rows import (
        NO_ROWS,
        Layout,
        answers,
        defaulted,
        has_decided_quorum,
        layout_of,
        merge,
        merge_layout,
        parts_of,
    )  # fmt: skip
    from bls_story import Story
    from bls_threads import Pool, Timers, guarded
    from bls_values import Arrays, Result
    from bls_work import Attempt, Work
    from model_counters import FALLBACKS, Counters

Call = Callable[[Node, Arrays, int], Arrays]
"""Runs a node's model: inputs by name and a timeout in microseconds (0: none) -> outputs by name.
Raises NodeError. The one seam to Triton.
"""
Answer = Callable[[Any], None]
"""Takes the pipeline's outputs by name, or a NodeError."""


class Runner:
    """A plan, and what its requests share: threads, timers, answers, how many are under way."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.counters = Counters()
        self.cache = Cache(plan.cache_bytes, self.counters)
        self.pool = Pool(plan.calls_at_once)
        self.timers = Timers()
        self._lock = threading.Lock()
        self._pending = 0

    def start(
        self,
        inputs: Arrays,
        batch: int,
        wanted: Iterable[str],
        call: Call,
        answer: Answer,
        said: bytes = b"",
    ) -> None:
        """Begin a request; `answer` is called exactly once, from any thread. Where it raises, it
        is called again, with that as the error. `said` is what its calls take along beside their
        inputs.
        """
        if not self._enter():
            message = f"{self.plan.max_pending} requests are under way (max_pending)"
            give(answer, NodeError(message, "unavailable"))
            return
        if (rows := self.plan.rows) is not None:
            inputs = {**inputs, rows.name: np.zeros((batch, 1), rows.numpy)}
        run = Run(self, inputs, batch, self.plan.route(wanted), call, answer, said)
        run.change(run.begin)

    def _enter(self) -> bool:
        with self._lock:
            most = self.plan.max_pending
            if most is not None and self._pending >= most:
                return False
            self._pending += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._pending -= 1

    def give_up(self, attempts: Iterable[Attempt], error: NodeError) -> None:
        """Fail calls of whatever requests, soon: the calling thread may hold a request's lock."""
        for attempt in attempts:
            self.timers.soon(partial(attempt.give_up, error))


def give(answer: Answer, final: Any) -> None:
    """An answer that cannot be sent leaves as an error; if that cannot either, nobody is there."""
    try:
        answer(final)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the request is answered
        error = NodeError(f"its answer cannot be sent: {error_of(problem)}")
        guarded(lambda: answer(error))


class Run:
    """A request. `change` may be called from any thread; all else runs inside it."""

    def __init__(
        self,
        runner: Runner,
        inputs: Arrays,
        batch: int,
        route: Route,
        call: Call,
        answer: Answer,
        said: bytes,
    ) -> None:
        self.runner, self.call, self.said = runner, call, said
        self.ready: list[Callable[[], Any]] = []
        """Calls to send, or to look up, as soon as the change under way is over."""
        self._batch, self._route, self._answer = batch, route, answer
        self._results: dict[str, Result] = {"": Result(inputs)}
        self._works: dict[str, Work] = {}
        self._waits = dict(route.waits)
        """For how many others a node waits that has not started."""
        self._missing = set(route.shown)
        self._done: deque[tuple[Node, Result]] = deque()
        """Nodes that are done, and whose readers have not heard of it."""
        self._lock = threading.Lock()
        self._began = time.monotonic()
        limit = runner.plan.deadline_s
        self._deadline = None if limit is None else self._began + limit
        self._story = Story(batch, self._began) if route.provenance else None
        self._final: Any = None
        self._over = False

    def change(
        self, change: Callable[[], None], *, inline: bool = False
    ) -> Callable[[], Any] | None:
        """Every change goes through here: one at a time, and what goes wrong is the answer. Then,
        outside the lock, calls leave; this thread may do the last itself where it is `inline`.
        """
        with self._lock:
            try:
                change()
                while self._done and not self._over:
                    self._spread(*self._done.popleft())
            except Exception as problem:  # noqa: BLE001 - whatever it is, the request is answered
                self._end(error_of(problem))
            ready, self.ready = self.ready, []
            final, self._final = self._final, None
        if final is not None:
            self.runner.leave()
            give(self._answer, final)
        last = ready.pop() if inline and ready else None
        for work in ready:
            self.runner.pool.submit(work)
        return last

    def begin(self) -> None:
        for node in self._route.first:
            self._start(node)
        if not self._missing:
            self._end(self._outputs())

    # A node starts: which rows, which calls.

    def _start(self, node: Node) -> None:
        del self._waits[node.name]
        layout = Layout(None, [])
        try:
            if node.branches:
                layout = merge_layout(node, self._results, self._batch)
                self._settle(node, layout, merge(node, self._results, layout, self._batch))
                return
            layout = layout_of(node, self._results, self._batch)
            self._refuse(node, layout)
            parts = list(parts_of(node, layout, self._results, self._batch))
        except Exception as problem:  # noqa: BLE001 - a failure of this node, whatever it is
            self.lose(node, layout, error_of(problem))
            return
        work = self._works[node.name] = Work(self, node, layout, parts, self._deadline)
        if not parts:
            self.complete(work)
        elif node.is_cached:
            work.look_up()
        else:
            work.begin()

    def _refuse(self, node: Node, layout: Layout) -> None:
        if not layout.groups:
            return
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise NodeError("not started, for deadline_ms is over", "deadline")
        if node.quorum and (found := answers(node, self._results)) < node.quorum_need:
            message = f"{found} of {len(node.quorum)} nodes have answered"
            lost = (self._results[n].error for n in node.quorum if n in self._results)
            why = next((f": {error}" for error in lost if error is not None), "")
            raise NodeError(f"{message}, it needs {node.quorum_need}{why}", "quorum")

    # A node is done: what becomes of failed rows, who goes on, the answer.

    def complete(self, work: Work) -> None:
        """All calls of a node are answered."""
        node, rows = work.node, work.layout.rows
        try:
            numbers = range(self._batch) if rows is None else rows.tolist()
            arrays = collect(node, work.parts, numbers) if numbers else {}
        except Exception as problem:  # noqa: BLE001 - a failure of this node, whatever it is
            self.lose(node, work.layout, error_of(problem))
            return
        self._settle(node, work.layout, arrays)

    def lose(self, node: Node, layout: Layout, error: NodeError) -> None:
        """The rows that a node would have run fail, beside those that had failed before."""
        told = NodeError(f"{node.title}: {error}", error.kind, error.code)
        self._settle(node, layout.lost(told, self._batch), {})

    def _settle(self, node: Node, layout: Layout, arrays: Arrays) -> None:
        """Failed rows get what `on_error` says, or count as absent, or stay failed."""
        arrays = arrays or {tensor.name: tensor.nothing() for tensor in node.outputs}
        result = Result(arrays, layout.rows, layout.failed, layout.error)
        if self._story is not None:
            self._tell(self._story, node, layout)
        if layout.failed is not None and node.absorbs:
            self.runner.counters.add(FALLBACKS, node.name)
        if layout.failed is not None and node.has_default:
            result = self._defaulted(node, result)
        elif layout.failed is not None and not node.required:
            result = Result(arrays, layout.rows)
        self._done.append((node, result))

    def _defaulted(self, node: Node, result: Result) -> Result:
        try:
            return defaulted(node, result, self._batch)
        except NodeError as error:
            told = NodeError(f"{node.title}: with `on_error` {error}")
            return Result({}, NO_ROWS, np.arange(self._batch), told)

    def _tell(self, story: Story, node: Node, layout: Layout) -> None:
        now = time.monotonic()
        work = self._works.get(node.name)
        times = (work.started if work else now, now)
        marks, found = (work.marks, work.found_rows) if work else ({}, [])
        story.tell(node, layout.rows, times, marks, found)
        if layout.failed is not None and layout.error is not None:
            story.lose(node, layout.failed, layout.error)

    def _spread(self, node: Node, result: Result) -> None:
        """Those who wait for a node hear that it is done."""
        self._results[node.name] = result
        if result.error is not None and node.name in self._route.fatal:
            self._end(result.error)
            return
        self._missing.discard(node.name)
        if not self._missing:
            self._end(self._outputs())
            return
        for reader in self._route.readers[node.name]:
            if reader.name in self._waits:
                self._waits[reader.name] -= 1
                self._notify(reader, node, result)

    def _notify(self, reader: Node, node: Node, result: Result) -> None:
        if self._waits[reader.name] == 0 or self._goes_on(reader):
            self._start(reader)
        elif self._decides(node, result, reader):
            del self._waits[reader.name]
            layout = Layout(NO_ROWS, [], np.arange(self._batch), result.error)
            self._settle(reader, layout, {})

    def _goes_on(self, reader: Node) -> bool:
        """Whether a quorum is decided, and nothing else is waited for."""
        if not reader.quorum or not has_decided_quorum(reader, self._results):
            return False
        return all(name in self._results for name in reader.sources.difference(reader.quorum))

    def _decides(self, node: Node, result: Result, reader: Node) -> bool:
        """Whether a failure is that of every row of a reader, whatever else comes."""
        return (
            result.failed is not None
            and len(result.failed) == self._batch
            and reader.when is None
            and node.name in reader.hard
        )

    def _end(self, final: Any) -> None:
        """The answer is known. What is still under way is late."""
        if self._over:
            return
        self._over, self._final = True, final
        for work in self._works.values():
            if not work.done:
                work.abandon()
        self._works, self._results = {}, {}

    def _outputs(self) -> Any:
        found: Arrays = {}
        for output in self._route.outputs:
            result = self._results[output.node]
            if result.rows is not None:
                message = f"output `{output.name}` has no value on some rows"
                return result.error or NodeError(message)
            found[output.name] = result.arrays[output.tensor]
        if self._story is not None:
            found[PROVENANCE] = self._story.told(self._route.nodes)
        return found
