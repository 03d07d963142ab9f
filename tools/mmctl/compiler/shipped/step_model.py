"""The `model.py` of Python steps: joins requests, calls the steps, checks what they return.

It reads `step.json` beside it. A step is a plain function on stacked arrays: `f(x, y)` gets
[batch, ...] and returns {"name": [batch, ...]}; strings are arrays of `str` objects, one value
per row is an array [batch], a list tensor a list over rows of lists of items. Here requests are
stacked, served by one call and split again; when that call fails, each request runs alone, so
that only the bad one is answered with an error.

A model may have several steps: each gets what it would get if it were a model of its own.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # in a model's folder the files lie side by side, without a package
    from mmctl.compiler.shipped.model_counters import FAILURES, Counters, Teller
    from mmctl.compiler.shipped.step_reads import Read, read_of
    from mmctl.compiler.shipped.step_tensors import StepError, Tensor
else:
    from model_counters import FAILURES, Counters, Teller
    from step_reads import read_of
    from step_tensors import StepError, Tensor

SCHEMA = 2

Arrays = Mapping[str, Any]
Values = list[Any]
"""What the model was sent, then what each step has given; None for an input left out."""
Function = Callable[..., Any]
Source = tuple[str, str]
"""A step and its output, or "" and an input of the model."""


class Known:
    """The tensors that are there before a step runs, and where they stand in `Values`."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.slots: dict[Source, int] = {}
        reads = [i["from"] for step in plan["steps"] for i in step["inputs"]]
        self._times_read = Counter(map(tuple, reads))

    def add(self, step: str, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self.slots[step, tensor.name] = len(self.tensors)
            self.tensors.append(tensor)

    def read(self, entry: Mapping[str, Any], *, is_own: bool) -> tuple[str, int, Read | None]:
        """An input of a step: what the function calls it, its slot, how it is read.

        A function of the user's may write to its arrays, and may give what it still holds.
        """
        tensor, source = Tensor(entry), tuple(entry["from"])
        slot, is_sent = self.slots[source], source[0] == ""
        keep = is_own and (not is_sent or self._times_read[source] > 1)
        read = read_of(self.tensors[slot], tensor, is_sent=is_sent, keep=keep)
        return tensor.name, slot, read


class Step:
    """One function, and how it reads its arguments from the values before it."""

    def __init__(self, entry: Mapping[str, Any], function: Function, known: Known) -> None:
        self.name: str = entry["step"]
        self.rows: bool = entry["rows"]
        self.is_ready_made = entry["options"] is not None
        self.function = function
        self.inputs = [known.read(i, is_own=not self.is_ready_made) for i in entry["inputs"]]
        self.gives = [Tensor(output) for output in entry["gives"]]
        known.add(self.name, self.gives)

    def run(self, values: Values, batch: int) -> Values:
        """What it gives, in the order of its outputs. Raises StepError."""
        try:
            arguments = {
                key: value if (value := values[slot]) is None or read is None else read(value)
                for key, slot, read in self.inputs
            }
            returned = self._by_row(arguments, batch) if self.rows else self._returned(arguments)
            return [
                value
                if (value := returned.get(t.name)).__class__ is np.ndarray
                and value.dtype is t.plain
                and value.shape == (batch, *t.dims)
                else t.checked(_taken(returned, t.name), batch)
                for t in self.gives
            ]
        except StepError as error:
            error.step = self.name
            raise

    def _by_row(self, arguments: dict[str, Any], batch: int) -> dict[str, Any]:
        """Calls a function of one row for each row, and stacks what it returns."""
        rows = [
            self._returned({key: a if a is None else a[i] for key, a in arguments.items()})
            for i in range(batch)
        ]
        return {t.name: t.stacked([_taken(row, t.name) for row in rows]) for t in self.gives}

    def _returned(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            returned = self.function(**arguments)
        except (Exception, SystemExit) as error:
            raise StepError(self._told(error)) from error
        if not isinstance(returned, dict):
            raise StepError(f"it returned {type(returned).__name__}, expected a dict of arrays")
        return returned

    def _told(self, error: BaseException) -> str:
        """`ValueError: bad word (steps.py, line 12)`; the bare message of a ready-made step."""
        if self.is_ready_made and isinstance(error, ValueError):
            return str(error)
        here = Path(__file__)
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename != str(here) and Path(frame.filename).is_relative_to(here.parent)
        ]
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        return f"{type(error).__name__}: {error}{place}"


def _taken(returned: Mapping[str, Any], key: str) -> Any:
    if key not in returned:
        names = ", ".join(f"`{name}`" for name in returned) or "nothing"
        raise StepError(f"output `{key}` is missing: the step returned {names}")
    return returned[key]


class Steps:
    """The steps of a model, ready to run. Knows nothing of Triton: arrays come in and go out."""

    def __init__(self, plan: Mapping[str, Any], functions: Sequence[Function]) -> None:
        self.name: str = plan["steps"][-1]["step"]
        self.batched: bool = plan["batched"]
        self.join: bool = plan["join"]
        self.inputs = [Tensor(entry) for entry in plan["inputs"]]
        known = Known(plan)
        known.add("", self.inputs)
        pairs = zip(plan["steps"], functions, strict=True)
        self.steps = [Step(entry, function, known) for entry, function in pairs]
        shown = [(o["name"], known.slots[tuple(o["from"])]) for o in plan["outputs"]]
        self.outputs = [(name, slot, known.tensors[slot]) for name, slot in shown]

    def run(self, requests: Sequence[Arrays]) -> list[Arrays | StepError]:
        """One outcome a request, in their order: outputs by name, or why there are none.

        A request maps names to arrays as Triton sends them; None for what it left out.
        """
        outcomes: list[Any] = [None] * len(requests)
        readable = []
        for index, request in enumerate(requests):
            try:
                readable.append((index, *self._read(request)))
            except StepError as error:
                outcomes[index] = error
        for members in self._groups(readable):
            if len(members) == 1:
                index, values, batch = members[0]
                outcomes[index] = self._alone(values, batch)
            else:
                for index, outcome in self._together(members):
                    outcomes[index] = outcome
        return outcomes

    def _read(self, request: Arrays) -> tuple[Values, int]:
        """What one request sends, with a batch axis, and how many rows it has."""
        values: Values = []
        batch = 1
        for tensor in self.inputs:
            array = request.get(tensor.name)
            if array is not None:
                array = array if self.batched else array[None]
                batch = len(array)
            elif not tensor.optional:
                raise self._missing(tensor)
            values.append(array)
        return values, batch

    def _missing(self, tensor: Tensor) -> StepError:
        error = StepError(f"input `{tensor.name}` is missing")
        error.step = self.name
        return error

    def _groups(self, readable: list[Any]) -> Iterable[list[Any]]:
        """Requests that one call can serve: those whose rows have the same shapes."""
        if len(readable) < 2 or not self.join:
            return [[member] for member in readable]
        groups: dict[Any, list[Any]] = {}
        for member in readable:
            shapes = tuple([a if a is None else a.shape[1:] for a in member[1]])
            groups.setdefault(shapes, []).append(member)
        return groups.values()

    def _alone(self, values: Values, batch: int) -> Arrays | StepError:
        try:
            return self._call(values, batch)
        except StepError as error:
            return error

    def _together(self, members: list[Any]) -> Iterator[tuple[int, Arrays | StepError]]:
        """One call for all, or one for each when that fails."""
        columns = zip(*[values for _, values, _ in members], strict=True)
        joined = [None if column[0] is None else np.concatenate(column) for column in columns]
        try:
            outputs = self._call(joined, sum([batch for _, _, batch in members]))
        except StepError:
            yield from ((index, self._alone(values, batch)) for index, values, batch in members)
            return
        start = 0
        for index, _, batch in members:
            yield index, {name: rows[start : start + batch] for name, rows in outputs.items()}
            start += batch

    def _call(self, sent: Values, batch: int) -> dict[str, Any]:
        """Outputs by Triton's names, [batch, ...]."""
        values = sent
        for step in self.steps:
            values = values + step.run(values, batch)
        return {name: values[slot] for name, slot, _ in self.outputs}


def _have_one_shape(columns: list[list[Any]]) -> bool:
    """Whether the arrays of each column differ in nothing but how many rows they have."""
    return all(array.shape[1:] == column[0].shape[1:] for column in columns for array in column)


def load_functions(plan: Mapping[str, Any], folder: Path) -> list[Function]:
    """A function for each step. Modules of the user lie in `folder` and `folder/common`."""
    sys.path[:0] = [str(folder), str(folder / "common")]
    return [_load_function(entry, folder) for entry in plan["steps"]]


def _load_function(entry: Mapping[str, Any], folder: Path) -> Function:
    try:
        found = getattr(importlib.import_module(entry["module"]), entry["function"])
        function: Function = found if entry["options"] is None else found(entry["options"], folder)
        return function
    except Exception as error:
        message = f"step `{entry['step']}` cannot be loaded: {type(error).__name__}: {error}"
        raise RuntimeError(message) from error


class TritonPythonModel:
    """The face that Triton's Python backend asks for."""

    def initialize(self, args: Mapping[str, str]) -> None:
        folder = Path(__file__).parent
        plan = json.loads((folder / "step.json").read_text(encoding="utf-8"))
        if plan["schema"] != SCHEMA:
            raise ValueError(f"step.json has schema {plan['schema']}, this model.py reads {SCHEMA}")
        import triton_python_backend_utils

        self.pb_utils = triton_python_backend_utils
        self.counters = Counters()
        self.teller = Teller(self.counters, args["model_name"], [(FAILURES, "error")])
        self.steps = Steps(plan, load_functions(plan, folder))
        self.names = [tensor.name for tensor in self.steps.inputs]
        self.is_straight = self.steps.batched and not any(t.optional for t in self.steps.inputs)

    def execute(self, requests: list[Any]) -> list[Any]:
        if self.is_straight and (answers := self._straight(requests)) is not None:
            return answers
        names, find = self.names, self.pb_utils.get_input_tensor_by_name
        read = [
            {n: None if (t := find(request, n)) is None else t.as_numpy() for n in names}
            for request in requests
        ]
        outcomes = self.steps.run(read)
        return [self._response(*pair) for pair in zip(requests, outcomes, strict=True)]

    def _straight(self, requests: list[Any]) -> list[Any] | None:
        """Requests that have every input and can be joined, in as few calls as can be: between two
        executions other processes run, and each function that the caches have lost costs about a
        microsecond. None when they cannot be joined.
        """
        steps, find = self.steps, self.pb_utils.get_input_tensor_by_name
        columns = [[find(request, name).as_numpy() for request in requests] for name in self.names]
        values = [column[0] for column in columns]
        if len(requests) > 1:
            if not steps.join or not _have_one_shape(columns):
                return None
            values = [np.concatenate(column) for column in columns]
        batch = len(values[0])
        try:
            for step in steps.steps:
                values += step.run(values, batch)
        except StepError as error:
            if len(requests) == 1:
                return [self._refusal(error)]
            return [answer for request in requests for answer in self._straight([request]) or ()]
        sent = [(n, tensor.sent(values[slot], batched=True)) for n, slot, tensor in steps.outputs]
        return self._shared_out(requests, [len(array) for array in columns[0]], sent)

    def _shared_out(self, requests: list[Any], sizes: list[int], sent: list[Any]) -> list[Any]:
        """To each request its rows of the outputs that it wants."""
        pb_utils, answers, start = self.pb_utils, [], 0
        for request, size in zip(requests, sizes, strict=True):
            wanted = request.requested_output_names() if len(sent) > 1 else None
            tensors = [
                pb_utils.Tensor(name, array[start : start + size])
                for name, array in sent
                if wanted is None or name in wanted
            ]
            answers.append(pb_utils.InferenceResponse(tensors))
            start += size
        return answers

    def _response(self, request: Any, outcome: Arrays | StepError) -> Any:
        if isinstance(outcome, StepError):
            return self._refusal(outcome)
        wanted = request.requested_output_names()
        tensors = [
            self.pb_utils.Tensor(name, tensor.sent(outcome[name], batched=self.steps.batched))
            for name, _, tensor in self.steps.outputs
            if name in wanted
        ]
        return self.pb_utils.InferenceResponse(tensors)

    def _refusal(self, error: StepError) -> Any:
        """Told at once: this is the only thread that may."""
        self.counters.add(FAILURES, "error")
        self.teller.tell()
        told = self.pb_utils.TritonError(f"step `{error.step}`: {error}")
        return self.pb_utils.InferenceResponse(output_tensors=[], error=told)
