"""ONNX Runtime on CPU as a Triton Python-based backend, for servers without the C++ backend.

Serves configs written for Triton's C++ onnxruntime backend unchanged: its parameters, checks,
texts, order of outputs, strings, scalars, optional inputs and sequence controls are kept, so that
a repository behaves here as in NVIDIA's container. What differs, on purpose:

- threads default to cores / instances and never spin; accelerators are logged and ignored;
- a request that fails in a joined run is run again alone, so it never fails its neighbours;
- surplus rows, one scalar for different requests and short string outputs are errors, where the
  C++ backend answers wrongly or dies.

Refused at load, by name: ragged batches, `batch_input`, `batch_output` and implicit sequence state.
Configs must be complete: `auto_complete_config` is not defined, so Triton leaves them as they are.
One file, because a Python-based backend is one `model.py`; the sections go from config to answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

Array = npt.NDArray[Any]
Feed = dict[str, Array]
Shape = tuple[int, ...]


# ---------------------------------------------------------------- errors


class LoadError(Exception):
    """The model cannot be served; `status` is what the C++ backend puts before the text."""

    def __init__(self, text: str, status: str = "Invalid argument") -> None:
        super().__init__(text)
        self.status = status

    def as_seen_by_triton(self) -> Exception:
        """Triton prints the class name before the text, so the class is named like the status."""
        named: type[Exception] = type(self.status, (Exception,), {})
        return named(str(self))


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
        raise LoadError(text, status) from None


# ---------------------------------------------------------------- what the config asks for


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output in the config or in the model; `shape` is the one that the model sees."""

    name: str
    dtype: str
    shape: Shape
    optional: bool = False
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a config.pbtxt that this backend obeys; shapes leave out the batch axis."""

    model: str
    path: str
    max_batch: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    controls: tuple[Tensor, ...]
    states: int
    batch_inputs: int
    batch_outputs: int
    instances: int
    first_instance: bool
    parameters: Mapping[str, str]
    graph_level: int
    accelerators: tuple[str, ...]
    cpu_accelerators: tuple[str, ...]
    op_libraries: tuple[str, ...]


def read_config(args: Mapping[str, str]) -> Config:
    """`args` as Triton gives them to `initialize`."""
    raw = json.loads(args["model_config"])
    sequence = raw.get("sequence_batching", {})
    optimization = raw.get("optimization", {})
    accelerators = optimization.get("execution_accelerators", {})
    groups = raw.get("instance_group", [])
    filename = raw.get("default_model_filename") or "model.onnx"
    return Config(
        model=args["model_name"],
        path=f"{args['model_repository']}/{args['model_version']}/{filename}",
        max_batch=raw.get("max_batch_size", 0),
        inputs=tuple(config_tensor(entry) for entry in raw.get("input", [])),
        outputs=tuple(config_tensor(entry) for entry in raw.get("output", [])),
        controls=tuple(control_tensors(sequence.get("control_input", []))),
        states=len(sequence.get("state", [])),
        batch_inputs=sum(len(entry["target_name"]) for entry in raw.get("batch_input", [])),
        batch_outputs=len(raw.get("batch_output", [])),
        instances=sum(group["count"] for group in groups),
        first_instance=args["model_instance_name"] == f"{groups[0]['name']}_0",
        parameters={key: value["string_value"] for key, value in raw.get("parameters", {}).items()},
        graph_level=optimization.get("graph", {}).get("level", 0),
        accelerators=tuple(entry["name"] for kind in accelerators.values() for entry in kind),
        cpu_accelerators=tuple(
            entry["name"] for entry in accelerators.get("cpu_execution_accelerator", [])
        ),
        op_libraries=tuple(raw.get("model_operations", {}).get("op_library_filename", [])),
    )


def config_tensor(entry: Mapping[str, Any]) -> Tensor:
    reshape = entry.get("reshape")
    return Tensor(
        name=entry["name"],
        dtype=entry["data_type"],
        shape=tuple(entry["dims"] if reshape is None else reshape["shape"]),
        optional=entry.get("optional", False),
        ragged=entry.get("allow_ragged_batch", False),
    )


def control_tensors(entries: Sequence[Mapping[str, Any]]) -> Iterator[Tensor]:
    for entry in entries:
        for control in entry["control"]:
            dtype = control.get("data_type", "TYPE_INVALID")
            for word in ("int32", "fp32", "bool"):
                if control.get(f"{word}_false_true"):
                    dtype = f"TYPE_{word.upper()}"
            yield Tensor(entry["name"], dtype, (1,))


# ---------------------------------------------------------------- the session

GRAPH_LEVELS = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def integer(text: str) -> int:
    """The leading number of `text`, as C's `stoi` reads it."""
    match = re.match(r"\s*([+-]?\d+)", text)
    if match is None or not -(2**31) <= int(match[1]) < 2**31:
        raise LoadError(f"failed to convert '{text}' to integral number")
    return int(match[1])


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "on", "1", "false", "off", "0"):
        raise LoadError(f"failed to convert '{text}' to boolean")
    return text.lower() in ("true", "on", "1")


def execution_mode(text: str) -> Any:
    modes = {0: ort.ExecutionMode.ORT_SEQUENTIAL, 1: ort.ExecutionMode.ORT_PARALLEL}
    if integer(text) not in modes:
        raise LoadError(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 "
            f"but got {integer(text)} ."
        )
    return modes[integer(text)]


def session_options(config: Config) -> Any:
    """Threads that are not asked for are the cores shared among the instances, at least one."""
    given = config.parameters
    share = max(1, len(os.sched_getaffinity(0)) // max(1, config.instances))
    intra = integer(given.get("intra_op_thread_count", "0"))
    inter = integer(given.get("inter_op_thread_count", "0"))
    options = ort.SessionOptions()
    options.intra_op_num_threads = intra if intra > 0 else share
    options.inter_op_num_threads = inter if inter > 0 else share
    options.execution_mode = execution_mode(given.get("execution_mode", "0"))
    options.enable_cpu_mem_arena = boolean(given.get("enable_mem_arena", "true"))
    options.enable_mem_pattern = boolean(given.get("enable_mem_pattern", "true"))
    options.graph_optimization_level = GRAPH_LEVELS.get(
        config.graph_level, ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    )
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    for library in config.op_libraries:
        with ort_errors_refuse_the_model():
            options.register_custom_ops_library(library)
    return options


def check_accelerators(config: Config) -> None:
    """OpenVINO is in NVIDIA's container, so a config may ask for it; nothing else exists on CPU."""
    for name in config.cpu_accelerators:
        if name != "openvino":
            raise LoadError(f"unknown Execution Accelerator '{name}' is requested")


def run_options(config: Config) -> Any:
    shrink = config.parameters.get("memory.enable_memory_arena_shrinkage")
    if shrink is None:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", shrink)
    return options


def model_file(config: Config) -> str:
    """The file to open; a folder stands for the `model.onnx` in it."""
    if not os.path.exists(config.path):
        raise LoadError(f"failed to stat file {config.path}", "Internal")
    if not os.path.isdir(config.path):
        return config.path
    inner = f"{config.path}/model.onnx"
    if not os.path.exists(inner):
        text = f"unable to find '{inner}' for model instance '{config.model}'"
        raise LoadError(text, "Unavailable")
    return inner


def open_session(config: Config) -> Any:
    options = session_options(config)
    path = model_file(config)
    check_accelerators(config)
    with ort_errors_refuse_the_model():
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


# ---------------------------------------------------------------- what the model offers

MODEL_TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}
OTHER_TYPES = {"seq": "SEQUENCE", "map": "MAP", "sparse_tensor": "SPARSETENSOR"}


def model_tensor(argument: Any) -> Tensor:
    """With the shape that ONNX Runtime reports, batch axis included; () is a scalar or unknown."""
    kind = argument.type.split("(")[0]
    if kind != "tensor":
        raise LoadError(
            f"Unsupported ONNX Type 'ONNX_TYPE_{OTHER_TYPES.get(kind, 'UNKNOWN')}' "
            f"for I/O '{argument.name}', expected 'ONNX_TYPE_TENSOR'.",
            "Unsupported",
        )
    shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in argument.shape)
    return Tensor(argument.name, MODEL_TYPES.get(argument.type, "TYPE_<invalid>"), shape)


def model_tensors(arguments: Sequence[Any]) -> dict[str, Tensor]:
    return {argument.name: model_tensor(argument) for argument in arguments}


# ---------------------------------------------------------------- do the two fit?


def check_model(config: Config, session: Any) -> None:
    """Raises the first LoadError, in the order of the C++ backend's checks."""
    required = model_tensors(session.get_inputs())
    inputs = {**required, **model_tensors(session.get_overridable_initializers())}
    check_controls(config, inputs)
    check_count(config, len(required))
    for tensor in config.inputs:
        check_input(config, tensor, inputs)
    check_supported(config)
    outputs = model_tensors(session.get_outputs())
    for tensor in config.outputs:
        check_tensor(config, tensor, outputs, "output")


def check_controls(config: Config, inputs: Mapping[str, Tensor]) -> None:
    for control in config.controls:
        found = inputs.get(control.name)
        if found is None:
            text = (
                f"configuration specified sequence control '{control.name}', "
                "but model does not provide that input"
            )
            raise LoadError(text, "Internal")
        where = f"unable to load model '{config.model}', sequence control '{control.name}'"
        shape = found.shape[1:] if config.max_batch > 0 else found.shape
        if shape != (1,):
            raise LoadError(
                f"{where} in model has dims {shape_text(shape)} but dims [1] is expected"
            )
        if found.dtype != control.dtype:
            raise LoadError(
                f"{where}, the model expects data-type {type_word(found.dtype)} "
                f"but the model configuration specifies data-type {control.dtype}"
            )


def check_count(config: Config, provided: int) -> None:
    expected = sum(not tensor.optional for tensor in config.inputs)
    expected += len({control.name for control in config.controls})
    expected += config.states + config.batch_inputs
    if expected != provided:
        raise LoadError(
            f"unable to load model '{config.model}', "
            f"configuration expects {expected} inputs, model provides {provided}"
        )


def check_input(config: Config, tensor: Tensor, inputs: Mapping[str, Tensor]) -> None:
    if tensor.optional and config.max_batch > 0:
        raise LoadError(
            f"unable to load model '{config.model}', optional input '{tensor.name}' "
            "is not supported for models that support batching"
        )
    check_tensor(config, tensor, inputs, "input")


def check_tensor(config: Config, tensor: Tensor, offered: Mapping[str, Tensor], kind: str) -> None:
    """Name, type, then shape of one entry of the config; `kind` is input or output."""
    found = offered.get(tensor.name)
    if found is None:
        allowed = ", ".join(sorted(offered, key=str.encode))
        raise LoadError(
            f"unexpected inference {kind} '{tensor.name}', allowed {kind}s are: {allowed}"
        )
    if tensor.dtype not in MODEL_TYPES.values():
        raise LoadError(
            f"unsupported datatype {tensor.dtype} for {kind} '{tensor.name}' "
            f"for model '{config.model}'",
            "Internal",
        )
    if tensor.dtype != found.dtype:
        raise LoadError(
            f"unable to load model '{config.model}', configuration expects datatype "
            f"{tensor.dtype} for {kind} '{tensor.name}', "
            f"model provides TYPE_{type_word(found.dtype)}"
        )
    if tensor.ragged:
        check_ragged(config, found)
    elif not found.shape:
        check_scalar(config, tensor)
    else:
        check_shape(config, tensor, found.shape, exact=kind == "output")


def check_ragged(config: Config, found: Tensor) -> None:
    if found.shape != (-1,):
        raise LoadError(
            f"unable to load model '{config.model}', configuration expects model provides input "
            f"with shape [-1]  for ragged input '{found.name}', "
            f"model provides {shape_text(found.shape)}"
        )


def check_scalar(config: Config, tensor: Tensor) -> None:
    if any(size != 1 for size in tensor.shape):
        raise LoadError(
            f"unable to load model '{config.model}', scalar tensor '{tensor.name}', should only "
            "provide 1 in the model configuration when the model doesn't support batching. "
            f"Model configuration provided: {shape_text(tensor.shape)}."
        )


def check_shape(config: Config, tensor: Tensor, model_shape: Shape, *, exact: bool) -> None:
    """A size that the model leaves open takes any size of the config, unless `exact`."""
    where = f"model '{config.model}', tensor '{tensor.name}':"
    batching = config.max_batch > 0
    if batching and model_shape[0] != -1:
        raise LoadError(
            f"{where} for the model to support batching the shape should have at least 1 dimension "
            "and the first dimension must be -1; but shape expected by the model is "
            f"{shape_text(model_shape)}"
        )
    shape = (-1, *tensor.shape) if batching else tensor.shape
    if len(shape) == len(model_shape) and all(
        ours == theirs or (theirs == -1 and not exact)
        for ours, theirs in zip(shape, model_shape, strict=True)
    ):
        return
    specified = (
        "(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor "
        f"shape, making complete shape {shape_text(shape)})"
        if batching
        else f"(shape {shape_text(shape)})"
    )
    raise LoadError(
        f"{where} the model expects {len(model_shape)} dimensions "
        f"(shape {shape_text(model_shape)}) but the model configuration specifies "
        f"{len(shape)} dimensions {specified}"
    )


def check_supported(config: Config) -> None:
    """What the C++ backend serves and this one does not."""
    features = {
        "allow_ragged_batch": any(tensor.ragged for tensor in config.inputs),
        "batch_input": config.batch_inputs > 0,
        "batch_output": config.batch_outputs > 0,
        "sequence_batching.state": config.states > 0,
    }
    asked = ", ".join(name for name, used in features.items() if used)
    if asked:
        raise LoadError(
            f"unable to load model '{config.model}', not supported on the embedded server: {asked} "
            "(NVIDIA's container serves this configuration)",
            "Unsupported",
        )


def shape_text(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def type_word(dtype: str) -> str:
    """Triton's own name of a config type; strings are BYTES there."""
    return "BYTES" if dtype == "TYPE_STRING" else dtype.removeprefix("TYPE_")


# ---------------------------------------------------------------- requests


class Runner:
    """Answers requests with one session: reads them, joins them, runs once, splits the outputs."""

    def __init__(self, config: Config, session: Any) -> None:
        arguments = [*session.get_inputs(), *session.get_overridable_initializers()]
        outputs = model_tensors(session.get_outputs())
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

    def _with_axes(self, value: Array, shape: Shape) -> Array:
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
                    f"; input '{name}': expected shape {shape_text(expected)}, "
                    f"got {shape_text(array.shape)}"
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

    def initialize(self, args: Mapping[str, str]) -> None:
        config = read_config(args)
        try:
            session = open_session(config)
            check_model(config, session)
        except LoadError as error:
            raise error.as_seen_by_triton() from None
        if config.accelerators and config.first_instance:
            names = ", ".join(config.accelerators)
            pb_utils.Logger.log_warn(f"model '{config.model}' runs on CPU, without: {names}")
        self._runner = Runner(config, session)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return self._runner.answer(requests)
