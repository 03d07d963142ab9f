"""ONNX Runtime on CPU as a Triton Python-based backend, for servers without the C++ backend.

Serves configs written for Triton's C++ onnxruntime backend unchanged, and completes those that
leave something out: its parameters, checks, texts, order of outputs, strings, scalars, optional
inputs and sequence controls are kept, so that a repository behaves here as in NVIDIA's container.
What differs, on purpose:

- threads default to cores / instances and never spin; accelerators are logged and ignored;
- a request that fails in a joined run is run again alone, so it never fails its neighbours;
- surplus rows, one scalar for different requests and short string outputs are errors, where the
  C++ backend answers wrongly or dies.

Refused at load, by name: ragged batches, `batch_input`, `batch_output` and implicit sequence state.
Two files: `onnx_backend` beside this one decides what loads, this one opens sessions and answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from mmctl.triton import onnx_backend as rules
else:
    import onnx_backend as rules

Array = npt.NDArray[Any]
Feed = dict[str, Array]


# ---------------------------------------------------------------- errors


def seen_by_triton(error: rules.LoadError) -> Exception:
    """Triton prints the class name before the text, so the class is named like the status."""
    named: type[Exception] = type(error.status, (Exception,), {})
    return named(str(error))


class RequestError(Exception):
    """One request cannot be answered."""

    def __init__(self, text: str, *, unsupported: bool = False) -> None:
        super().__init__(text)
        self.unsupported = unsupported

    def response(self) -> Any:
        codes = pb_utils.TritonError
        code = codes.UNSUPPORTED if self.unsupported else codes.INTERNAL
        return pb_utils.InferenceResponse(error=codes(str(self), code))


def ort_failure(error: Exception) -> tuple[str, str]:
    """(`onnx runtime error N`, text), as ONNX Runtime's C interface has it."""
    match = re.match(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", str(error), re.DOTALL)
    return (f"onnx runtime error {match[1]}", match[2]) if match else ("Internal", str(error))


@contextlib.contextmanager
def ort_errors_refuse_the_model() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no base class
        status, text = ort_failure(error)
        raise rules.LoadError(text, status) from None


# ---------------------------------------------------------------- the session

GRAPH_LEVELS = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def session_options(config: rules.Config) -> Any:
    """Threads that are not asked for are the cores shared among the instances, at least one."""
    settings = rules.read_settings(config)
    share = max(1, len(os.sched_getaffinity(0)) // max(1, config.instances))
    modes = ort.ExecutionMode
    options = ort.SessionOptions()
    options.intra_op_num_threads = settings.intra_op_threads or share
    options.inter_op_num_threads = settings.inter_op_threads or share
    options.execution_mode = modes.ORT_PARALLEL if settings.parallel else modes.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = settings.arena
    options.enable_mem_pattern = settings.pattern
    options.graph_optimization_level = GRAPH_LEVELS.get(
        config.graph_level, ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    )
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def run_options(config: rules.Config) -> Any:
    shrink = config.parameters.get("memory.enable_memory_arena_shrinkage")
    if shrink is None:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", shrink)
    return options


def model_file(config: rules.Config, path: str) -> str:
    """The file to open; a folder stands for the `model.onnx` in it. None outside of the repository,
    where the C++ backend would open it.
    """
    if os.path.normpath(f"model/1/{config.filename}").startswith(".."):
        raise rules.LoadError(f"'{config.filename}' leads out of the model repository")
    if not os.path.exists(path):
        raise rules.LoadError(f"failed to stat file {path}", "Internal")
    if not os.path.isdir(path):
        return path
    inner = f"{path}/model.onnx"
    if not os.path.exists(inner):
        text = f"unable to find '{inner}' for model instance '{config.model}'"
        raise rules.LoadError(text, "Unavailable")
    return inner


def open_session(config: rules.Config, path: str) -> Any:
    options = session_options(config)
    file = model_file(config, path)
    rules.check_accelerators(config)
    with ort_errors_refuse_the_model():
        for library in config.op_libraries:
            options.register_custom_ops_library(library)
        return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def model_tensors(arguments: Sequence[Any]) -> list[rules.Tensor]:
    return [
        rules.model_tensor(argument.name, argument.type, argument.shape) for argument in arguments
    ]


def complete(config: rules.Config, path: str, default_max_batch: int) -> rules.Completion:
    if config.specified:
        return rules.complete(config, (), ())
    session = open_session(config, path)
    inputs, outputs = session.get_inputs(), session.get_outputs()
    return rules.complete(config, model_tensors(inputs), model_tensors(outputs), default_max_batch)


def check(config: rules.Config, session: Any) -> None:
    rules.check_model(
        config,
        model_tensors(session.get_inputs()),
        model_tensors(session.get_overridable_initializers()),
        model_tensors(session.get_outputs()),
    )
    check_supported(config)


def check_supported(config: rules.Config) -> None:
    """What the C++ backend serves and this one does not."""
    features = {
        "allow_ragged_batch": any(tensor.ragged for tensor in config.inputs),
        "batch_input": config.batch_inputs > 0,
        "batch_output": bool(config.batch_outputs),
        "sequence_batching.state": config.states > 0,
    }
    asked = ", ".join(name for name, used in features.items() if used)
    if asked:
        raise rules.LoadError(
            f"unable to load model '{config.model}', not supported on the embedded server: {asked} "
            "(NVIDIA's container serves this configuration)",
            "Unsupported",
        )


# ---------------------------------------------------------------- requests


class Runner:
    """Answers requests with one session: reads them, joins them, runs once, splits the outputs."""

    def __init__(self, config: rules.Config, session: Any) -> None:
        arguments = [*session.get_inputs(), *session.get_overridable_initializers()]
        outputs = {tensor.name: tensor for tensor in model_tensors(session.get_outputs())}
        self._session = session
        self._options = run_options(config)
        self._batching = config.max_batch > 0
        # The C++ backend answers in the order of a sorted map, each output once.
        self._outputs = sorted({tensor.name for tensor in config.outputs}, key=str.encode)
        self._scalar_outputs = {
            tensor.name: tensor.shape for tensor in config.outputs if not outputs[tensor.name].shape
        }
        self._strings = [arg.name for arg in arguments if arg.type == "tensor(string)"]
        self._scalars = [arg.name for arg in arguments if not arg.shape]
        self._axes = {arg.name: arg.shape for arg in arguments}

    def answer(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in their order."""
        if len(requests) > 1:
            try:
                return self._together(requests)
            except RequestError:
                # One of them is bad or does not fit the others: then each gets an own run.
                pass
        return [self._alone(request) for request in requests]

    def _alone(self, request: Any) -> Any:
        try:
            feed, rows = self._read(request)
            results = self._run(feed)
            return self._response(request, results, 0, rows, rows)
        except RequestError as error:
            return error.response()

    def _together(self, requests: Sequence[Any]) -> list[Any]:
        calls = [self._read(request) for request in requests]
        results = self._run(join([feed for feed, _ in calls]))
        total = sum(rows for _, rows in calls)
        responses, stop = [], 0
        for request, (_, rows) in zip(requests, calls, strict=True):
            start, stop = stop, stop + rows
            responses.append(self._response(request, results, start, stop, total))
        return responses

    def _read(self, request: Any) -> tuple[Feed, int]:
        """What to feed, without copies where the types allow it, and the rows of the batch."""
        feed = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        rows = len(next(iter(feed.values()))) if self._batching and feed else 1
        for name in self._strings:
            if name in feed:
                feed[name] = decoded(name, feed[name])
        for name in self._scalars:
            if name in feed:
                feed[name] = single_value(name, feed[name])
        return feed, rows

    def _run(self, feed: Feed) -> list[Array]:
        try:
            results = self._session.run(self._outputs, feed, self._options)
        except UnicodeDecodeError:
            raise RequestError("an output string of the model is not UTF-8") from None
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no base class
            raise RequestError(": ".join(ort_failure(error)) + self._odd_shape(feed)) from None
        for name, shape in self._scalar_outputs.items():
            at = self._outputs.index(name)
            results[at] = self._with_axes(np.asarray(results[at]), shape)
        return results  # type: ignore[no-any-return]

    def _with_axes(self, value: Array, shape: rules.Shape) -> Array:
        """A scalar in the shape that the config gives it; of unknown rank it may be no scalar."""
        if value.ndim:
            return value
        return value.reshape((1, *shape) if self._batching else shape)

    def _response(
        self, request: Any, results: Sequence[Array], start: int, stop: int, total: int
    ) -> Any:
        """Rows `start` to `stop` of every output, of `total` rows asked for in the run."""
        tensors = []
        for name, array in zip(self._outputs, results, strict=True):
            if not self._batching:
                tensors.append(pb_utils.Tensor(name, array))
                continue
            if not stop <= len(array) <= total:
                return split_error(request, name, len(array), stop, total).response()
            tensors.append(pb_utils.Tensor(name, array[start:stop]))
        return pb_utils.InferenceResponse(tensors)

    def _odd_shape(self, feed: Feed) -> str:
        """Names the input whose size differs where the model gives two inputs the same symbol."""
        sizes: dict[str, int] = {}
        for name, array in feed.items():
            expected = tuple(
                sizes.setdefault(axis, size) if isinstance(axis, str) else size
                for axis, size in zip(self._axes[name], array.shape)  # noqa: B905 - a scalar has none
            )
            if expected != array.shape:
                return (
                    f"; input '{name}': expected shape {rules.shape_text(expected)}, "
                    f"got {rules.shape_text(array.shape)}"
                )
        return ""


def join(feeds: Sequence[Feed]) -> Feed:
    """One feed of all rows; raises RequestError when the requests do not fit each other."""
    joined = {}
    for name, first in feeds[0].items():
        parts = [feed[name] for feed in feeds]
        if any(part.shape[1:] != first.shape[1:] for part in parts):
            raise RequestError(f"shapes of input '{name}' differ")
        if first.ndim:
            joined[name] = np.concatenate(parts)
        elif all(part == first for part in parts):
            joined[name] = first
        else:
            raise RequestError(f"values of scalar input '{name}' differ")
    return joined


def decoded(name: str, array: Array) -> Array:
    """Text for ONNX Runtime, which takes str only; cut at the first NUL like the C++ backend."""
    try:
        texts = [value.split(b"\0", 1)[0].decode() for value in array.reshape(-1)]
    except UnicodeDecodeError:
        raise RequestError(
            f"input '{name}' holds bytes that are not UTF-8; the embedded server takes UTF-8 only"
        ) from None
    return np.array(texts, dtype=np.object_).reshape(array.shape)


def single_value(name: str, array: Array) -> Array:
    """The scalar that every row of the request repeats."""
    values = array.reshape(-1)
    if len(values) > 1 and (values != values[0]).any():
        raise RequestError(f"scalar input '{name}' takes one value for all rows of a request")
    return values[:1].reshape(())


def split_error(request: Any, name: str, rows: int, stop: int, total: int) -> RequestError:
    expected = f"at least {stop}" if rows < stop else f"{total}"
    return RequestError(
        f"[request id: {request.request_id() or '<id_unknown>'}] failed to split the output tensor "
        f"'{name}' in responses: expected batch size of {expected} in model output, got {rows}",
        unsupported=True,
    )


# ---------------------------------------------------------------- Triton's side


class TritonPythonModel:
    """The class that Triton's Python backend looks for; one object and process per instance."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Asked once per model in a process of its own, also for configs that are complete."""
        # Said to be read-only; but the setters beside it take no `reshape`, and Triton reads back
        # this very dict.
        fields = auto_complete_model_config.as_dict()
        try:
            default = rules.read_default_max_batch(command_line(os.getppid()))
            file = command_line(os.getpid())[1]
            completion = complete(rules.read_config(fields), file, default)
        except rules.LoadError as error:
            raise seen_by_triton(error) from None
        for level, text in completion.log:
            say = pb_utils.Logger.log_warn if level == "W" else pb_utils.Logger.log_info
            say(text)
        fields.update(completion.changes)
        return auto_complete_model_config

    def initialize(self, args: Mapping[str, str]) -> None:
        fields = json.loads(args["model_config"])
        config = rules.read_config(fields, args["model_name"])
        path = f"{args['model_repository']}/{args['model_version']}/{config.filename}"
        try:
            rules.read_default_max_batch(command_line(os.getppid()))
            session = open_session(config, path)
            check(config, session)
        except rules.LoadError as error:
            raise seen_by_triton(error) from None
        first = f"{fields['instance_group'][0]['name']}_0"
        if config.accelerators and args["model_instance_name"] == first:
            names = ", ".join(config.accelerators)
            pb_utils.Logger.log_warn(f"model '{config.model}' runs on CPU, without: {names}")
        self._runner = Runner(config, session)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return self._runner.answer(requests)


def command_line(pid: int) -> list[str]:
    """The arguments of a process; of this one, the second is the file of the model to complete."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return [argument.decode(errors="replace") for argument in file.read().split(b"\0")]
