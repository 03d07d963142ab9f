"""The `model.py` of every Python step: joins requests, calls the step, checks what it returns.

It reads `step.json` beside it. A step is a plain function on stacked arrays: `f(x, y)` gets
[batch, ...] and returns {"name": [batch, ...]}; strings are arrays of `str` objects, one value
per row is an array [batch]. Here requests are stacked, served by one call and split again; when
that call fails, each request runs alone, so that only the bad one is answered with an error.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = 1

Arrays = Mapping[str, Any]
Function = Callable[..., Any]

NUMPY = {
    "bool": np.dtype(bool),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "string": np.dtype(object),
    "bytes": np.dtype(object),
    **{name: np.dtype(name) for name in ("int8", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
}
NARROWED = {("fp32", np.dtype(np.float64)), ("int32", np.dtype(np.int64))}
"""Numpy's own defaults, which code gives without meaning to: they are cast. Nothing else is."""


class StepError(Exception):
    """Why a request failed, in words for whoever sent it."""


class Tensor:
    """An input or output as step.json has it. `key` is what the function calls it."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.key: str = entry.get("key", entry["name"])
        self.word: str = entry["dtype"]
        self.dtype = NUMPY[self.word]
        self.is_text = self.dtype == object
        self.dims: tuple[int, ...] = tuple(entry["dims"])
        self.optional: bool = entry.get("optional", False)

    @property
    def shown(self) -> str:
        return f"{self.word}{list(self.dims)}" if self.dims else self.word

    def rows_of(self, array: Any, *, batched: bool) -> Any:
        """What Triton sends -> what the step gets: [batch, *dims], text decoded."""
        rows = array if batched else array[None]
        rows = rows if self.dims else rows.reshape(len(rows))
        return _decoded(rows, self.name) if self.word == "string" else rows

    def array_of(self, value: Any) -> Any:
        """Lists become arrays; text stays objects, for numpy's own text types drop final NULs."""
        try:
            return np.asarray(value, dtype=object if self.is_text else None)
        except ValueError:
            raise StepError(f"output `{self.key}` is ragged: its rows differ in shape") from None

    def checked(self, value: Any, batch: int) -> Any:
        """What the step returned as an array that may leave. Raises StepError."""
        array = self.array_of(value)
        if self.is_text:
            array = _encoded(array, self)
        elif array.dtype != self.dtype:
            array = _cast(array, self)
        wanted = (batch, *self.dims)
        if array.shape != wanted and not _fits(array.shape, wanted):
            raise StepError(
                f"output `{self.key}` has shape {list(array.shape)}, expected {list(wanted)} "
                f"({self.shown} for a batch of {batch})"
            )
        return array


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape is the wanted one, whose -1 stands for any size."""
    return len(shape) == len(wanted) and all(
        size in (-1, got) for size, got in zip(wanted, shape, strict=True)
    )


def _decoded(array: Any, name: str) -> Any:
    try:
        return _objects([item.decode() for item in array.ravel().tolist()], array.shape)
    except UnicodeDecodeError as error:
        raise StepError(f"`{name}` is not UTF-8: {error.reason} at byte {error.start}") from None


def _encoded(array: Any, tensor: Tensor) -> Any:
    """Bytes for Triton: `str` of a `string` output, `bytes` of a `bytes` one."""
    items = array.ravel().tolist()
    wanted = str if tensor.word == "string" else bytes
    if not all(isinstance(item, wanted) for item in items):
        stray = next(type(item).__name__ for item in items if not isinstance(item, wanted))
        raise StepError(f"output `{tensor.key}` holds {stray}, declared {tensor.shown}")
    if wanted is bytes:
        return array
    try:
        return _objects([item.encode() for item in items], array.shape)
    except UnicodeEncodeError:
        raise StepError(f"output `{tensor.key}` holds text that UTF-8 cannot write") from None


def _objects(items: list[Any], shape: tuple[int, ...]) -> Any:
    return np.array(items, dtype=object).reshape(shape)


def _cast(array: Any, tensor: Tensor) -> Any:
    if (tensor.word, array.dtype) not in NARROWED:
        raise StepError(f"output `{tensor.key}` is {array.dtype}, declared {tensor.shown}")
    if array.dtype.kind == "i" and array.size:
        limits = np.iinfo(tensor.dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise StepError(f"output `{tensor.key}` holds values beyond {tensor.word}")
    return array.astype(tensor.dtype)


class Step:
    """A step ready to run. Knows nothing of Triton: arrays come in and go out."""

    def __init__(self, plan: Mapping[str, Any], function: Function) -> None:
        self.name: str = plan["step"]
        self.inputs = [Tensor(entry) for entry in plan["inputs"]]
        self.outputs = [Tensor(entry) for entry in plan["outputs"]]
        self.batched: bool = plan["batched"]
        self.rows: bool = plan["rows"]
        self.join: bool = plan["join"]
        self.is_ready_made = plan["options"] is not None
        self.function = function

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
            for index, outcome in self._run_together(members):
                outcomes[index] = outcome
        return outcomes

    def _read(self, request: Arrays) -> tuple[dict[str, Any], int]:
        """The function's arguments for one request, and how many rows it has."""
        arguments: dict[str, Any] = {}
        batch = 1
        for tensor in self.inputs:
            array = request.get(tensor.name)
            if array is not None:
                arguments[tensor.key] = rows = tensor.rows_of(array, batched=self.batched)
                batch = len(rows)
            elif tensor.optional:
                arguments[tensor.key] = None
            else:
                raise StepError(f"input `{tensor.name}` is missing")
        return arguments, batch

    def _groups(self, readable: list[Any]) -> Iterator[list[Any]]:
        """Requests that one call can serve: those whose rows have the same shapes."""
        if len(readable) < 2 or not self.join:
            yield from ([member] for member in readable)
            return
        groups: dict[Any, list[Any]] = {}
        for member in readable:
            shapes = tuple(a if a is None else a.shape[1:] for a in member[1].values())
            groups.setdefault(shapes, []).append(member)
        yield from groups.values()

    def _run_together(self, members: list[Any]) -> Iterator[tuple[int, Arrays | StepError]]:
        if len(members) == 1:
            index, arguments, batch = members[0]
            try:
                yield index, self._call(arguments, batch)
            except StepError as error:
                yield index, error
            return
        joined = {
            key: None if array is None else np.concatenate([m[1][key] for m in members])
            for key, array in members[0][1].items()
        }
        try:
            outputs = self._call(joined, sum(batch for _, _, batch in members))
        except StepError:
            for member in members:
                yield from self._run_together([member])
            return
        start = 0
        for index, _, batch in members:
            yield index, {name: array[start : start + batch] for name, array in outputs.items()}
            start += batch

    def _call(self, arguments: dict[str, Any], batch: int) -> dict[str, Any]:
        """Outputs by Triton's names, [batch, ...]. Raises StepError."""
        returned = self._call_rows(arguments, batch) if self.rows else self._returned(arguments)
        checked: dict[str, Any] = {}
        for tensor in self.outputs:
            if tensor.key not in checked:
                checked[tensor.key] = tensor.checked(_taken(returned, tensor.key), batch)
        return {tensor.name: checked[tensor.key] for tensor in self.outputs}

    def _call_rows(self, arguments: dict[str, Any], batch: int) -> dict[str, Any]:
        """Calls a function of one row for each row, and stacks what it returns."""
        rows = [
            self._returned({key: a if a is None else a[i] for key, a in arguments.items()})
            for i in range(batch)
        ]
        return {tensor.key: _stacked(tensor, rows) for tensor in self.outputs}

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


def _stacked(tensor: Tensor, rows: list[dict[str, Any]]) -> Any:
    """One output of all rows as one array. Raises StepError when the rows differ in shape."""
    arrays = [tensor.array_of(_taken(row, tensor.key)) for row in rows]
    if len({array.shape for array in arrays}) > 1:
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise StepError(f"output `{tensor.key}`: its rows differ in shape: {shapes}")
    return np.stack(arrays)


def load_function(plan: Mapping[str, Any], folder: Path) -> Function:
    """The step's function. Modules of the user lie in `folder` and `folder/common`."""
    sys.path[:0] = [str(folder), str(folder / "common")]
    found = getattr(importlib.import_module(plan["module"]), plan["function"])
    function: Function = found if plan["options"] is None else found(plan["options"], folder)
    return function


class TritonPythonModel:
    """The face that Triton's Python backend asks for."""

    def initialize(self, args: Mapping[str, str]) -> None:
        folder = Path(__file__).parent
        plan = json.loads((folder / "step.json").read_text(encoding="utf-8"))
        if plan["schema"] != SCHEMA:
            raise ValueError(f"step.json has schema {plan['schema']}, this model.py reads {SCHEMA}")
        try:
            function = load_function(plan, folder)
        except Exception as error:
            message = f"step `{plan['step']}` cannot be loaded: {type(error).__name__}: {error}"
            raise RuntimeError(message) from error
        self.step = Step(plan, function)

    def execute(self, requests: list[Any]) -> list[Any]:
        import triton_python_backend_utils as pb_utils

        names = [tensor.name for tensor in self.step.inputs]
        read = []
        for request in requests:
            tensors = {n: pb_utils.get_input_tensor_by_name(request, n) for n in names}
            read.append({n: None if t is None else t.as_numpy() for n, t in tensors.items()})
        outcomes = self.step.run(read)
        return [self._response(*pair, pb_utils) for pair in zip(requests, outcomes, strict=True)]

    def _response(self, request: Any, outcome: Arrays | StepError, pb_utils: Any) -> Any:
        if isinstance(outcome, StepError):
            error = pb_utils.TritonError(f"step `{self.step.name}`: {outcome}")
            return pb_utils.InferenceResponse(output_tensors=[], error=error)
        wanted = request.requested_output_names()
        tensors = [
            pb_utils.Tensor(tensor.name, self._sent(tensor, outcome[tensor.name]))
            for tensor in self.step.outputs
            if tensor.name in wanted
        ]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _sent(self, tensor: Tensor, rows: Any) -> Any:
        """[batch, *dims] -> as config.pbtxt declares it: one value per row has an axis of 1."""
        array = rows if tensor.dims else rows[:, None]
        return np.ascontiguousarray(array if self.step.batched else array[0])
