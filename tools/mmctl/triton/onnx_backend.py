"""The rules of Triton's C++ ONNX Runtime backend: which configs load, what is filled into others.

Order of the checks, texts and order of completed tensors are those of that backend in 24.10. Pure,
and shipped beside the embedded server's ONNX backend as it stands, so that a checker without a
server says what the server will: the standard library only, Python 3.10, and all in one file.

What loads and then crashes or answers wrongly on the C++ backend is in `onnx_hazards`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BACKEND = "onnxruntime"
DEFAULT_MAX_BATCH = 4
"""What max_batch_size becomes where a model can batch and its config does not say."""

Shape = tuple[int, ...]


class LoadError(Exception):
    """The model cannot be served; `status` is what the C++ backend puts before the text."""

    def __init__(self, text: str, status: str = "Invalid argument") -> None:
        super().__init__(text)
        self.status = status


# ---------------------------------------------------------------- what config and model say


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output in the config or in the model; `shape` is the one that the model sees.

    In the config: without the batch axis, and after `reshape`. In the model: as ONNX Runtime
    reports it, batch axis included, -1 for what is open; () is a scalar or of unknown rank.
    `dtype` is Triton's word (`TYPE_FP32`), TYPE_INVALID for what Triton lacks, and
    `ONNX_TYPE_SEQUENCE` or the like for what is no tensor. `axis` is the name that the model
    gives its first axis, if one is known.
    """

    name: str
    dtype: str
    shape: Shape
    optional: bool = False
    ragged: bool = False
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a config.pbtxt that the backend obeys.

    `batch_inputs` counts entries, `batch_outputs` names their tensors. `specified` tells that
    inputs and outputs are given, which leaves nothing to complete.
    """

    model: str
    filename: str
    max_batch: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    controls: tuple[Tensor, ...]
    states: int
    batch_inputs: int
    batch_outputs: frozenset[str]
    specified: bool
    scheduled: bool
    instances: int
    parameters: Mapping[str, str]
    graph_level: int
    accelerators: tuple[str, ...]
    cpu_accelerators: tuple[str, ...]
    op_libraries: tuple[str, ...]


def read_config(config: Mapping[str, Any], model: str = "") -> Config:
    """From the fields of a config in protobuf's JSON form; absent ones have their defaults.

    `model` is the folder's name, for a config that leaves its own name out.
    """
    sequence = config.get("sequence_batching", {})
    optimization = config.get("optimization", {})
    accelerators = optimization.get("execution_accelerators", {})
    inputs, outputs = config.get("input", []), config.get("output", [])
    batch_inputs = config.get("batch_input", [])
    return Config(
        model=config.get("name") or model,
        filename=config.get("default_model_filename") or "model.onnx",
        max_batch=int(config.get("max_batch_size", 0)),
        inputs=tuple(config_tensor(entry) for entry in inputs),
        outputs=tuple(config_tensor(entry) for entry in outputs),
        controls=tuple(control_tensors(sequence.get("control_input", []))),
        states=len(sequence.get("state", [])),
        batch_inputs=len(batch_inputs),
        batch_outputs=frozenset(
            name
            for entry in config.get("batch_output", [])
            for name in entry.get("target_name", [])
        ),
        specified=bool((inputs or batch_inputs) and outputs),
        scheduled="sequence_batching" in config or "dynamic_batching" in config,
        instances=sum(int(group.get("count", 1)) for group in config.get("instance_group", [])),
        parameters={
            key: value.get("string_value", "")
            for key, value in config.get("parameters", {}).items()
        },
        graph_level=int(optimization.get("graph", {}).get("level", 0)),
        accelerators=tuple(
            entry.get("name", "") for kind in accelerators.values() for entry in kind
        ),
        cpu_accelerators=tuple(
            entry.get("name", "") for entry in accelerators.get("cpu_execution_accelerator", [])
        ),
        op_libraries=tuple(config.get("model_operations", {}).get("op_library_filename", [])),
    )


def config_tensor(entry: Mapping[str, Any]) -> Tensor:
    reshape = entry.get("reshape")
    dims = entry.get("dims", []) if reshape is None else reshape.get("shape", [])
    return Tensor(
        name=entry.get("name", ""),
        dtype=entry.get("data_type", "TYPE_INVALID"),
        shape=tuple(int(size) for size in dims),
        optional=entry.get("optional", False),
        ragged=entry.get("allow_ragged_batch", False),
    )


CONTROL_KINDS = tuple(f"CONTROL_SEQUENCE_{kind}" for kind in ("START", "END", "READY", "CORRID"))


def control_tensors(entries: Sequence[Mapping[str, Any]]) -> Iterator[Tensor]:
    """In the order in which the backend looks for them."""
    for kind in CONTROL_KINDS:
        for entry in entries:
            for control in entry.get("control", []):
                if control.get("kind", CONTROL_KINDS[0]) == kind:
                    yield Tensor(entry.get("name", ""), control_type(control), (1,))


def control_type(control: Mapping[str, Any]) -> str:
    for word in ("int32", "fp32", "bool"):
        if control.get(f"{word}_false_true"):
            return f"TYPE_{word.upper()}"
    return str(control.get("data_type", "TYPE_INVALID"))


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


def model_tensor(name: str, kind: str, shape: Sequence[int | str | None]) -> Tensor:
    """A tensor as ONNX Runtime describes it: `tensor(float)`, and None or a name for open axes."""
    word = kind.partition("(")[0]
    other = f"ONNX_TYPE_{OTHER_TYPES.get(word, 'UNKNOWN')}"
    return Tensor(
        name=name,
        dtype=MODEL_TYPES.get(kind, "TYPE_INVALID") if word == "tensor" else other,
        shape=tuple(size if isinstance(size, int) and size >= 0 else -1 for size in shape),
        axis=shape[0] if shape and isinstance(shape[0], str) else "",
    )


# ---------------------------------------------------------------- parameters


@dataclass(frozen=True, slots=True)
class Settings:
    """The parameters of a config; 0 threads are as many as ONNX Runtime likes."""

    parallel: bool
    intra_op_threads: int
    inter_op_threads: int
    arena: bool
    pattern: bool


def read_settings(config: Config) -> Settings:
    """Raises LoadError for a parameter that cannot be read."""
    given = config.parameters
    mode = integer(given.get("execution_mode", "0"))
    if mode not in (0, 1):
        raise LoadError(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 "
            f"but got {mode} ."
        )
    return Settings(
        parallel=mode == 1,
        intra_op_threads=max(0, integer(given.get("intra_op_thread_count", "0"))),
        inter_op_threads=max(0, integer(given.get("inter_op_thread_count", "0"))),
        arena=boolean(given.get("enable_mem_arena", "true")),
        pattern=boolean(given.get("enable_mem_pattern", "true")),
    )


def integer(text: str) -> int:
    """The leading number of `text`, as C's `stoi` reads it."""
    number = leading_number(text)
    if number is None or not fits_int(number):
        raise LoadError(f"failed to convert '{text}' to integral number")
    return number


def leading_number(text: str) -> int | None:
    """None where there is none. Of more digits than any integer has, the first ones."""
    match = re.match(r"\s*([+-]?)(?=[0-9])0*([0-9]{0,20})", text)
    return int(f"{match[1]}0{match[2]}") if match else None


def fits_int(number: int) -> bool:
    return -(2**31) <= number < 2**31


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "on", "1", "false", "off", "0"):
        raise LoadError(f"failed to convert '{text}' to boolean")
    return text.lower() in ("true", "on", "1")


def check_accelerators(config: Config) -> None:
    """OpenVINO is in NVIDIA's container, so a config may ask for it; nothing else exists on CPU."""
    for name in config.cpu_accelerators:
        if name != "openvino":
            raise LoadError(f"unknown Execution Accelerator '{name}' is requested")


def read_default_max_batch(arguments: Sequence[str]) -> int:
    """`default-max-batch-size` of a tritonserver's command line, for this backend or for all.

    Raises LoadError when it is no number: then no model of the backend loads.
    """
    given = [
        argument.removeprefix("--backend-config=") if "=" in argument else following
        for argument, following in zip(arguments, (*arguments[1:], ""), strict=True)
        if argument == "--backend-config" or argument.startswith("--backend-config=")
    ]
    found = {
        name: value
        for name, _, value in (setting.partition("=") for setting in given)
        if name.rpartition(",")[2] == "default-max-batch-size"
    }
    for name in (f"{BACKEND},default-max-batch-size", "default-max-batch-size"):
        if name in found:
            return integer(found[name])
    return DEFAULT_MAX_BATCH


# ---------------------------------------------------------------- completion


@dataclass(frozen=True, slots=True)
class Completion:
    """`changes` are the fields of the config to set; `log` is what is said, as (I or W, text)."""

    changes: Mapping[str, Any]
    log: tuple[tuple[str, str], ...] = ()


def complete(
    config: Config,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    default_max_batch: int = DEFAULT_MAX_BATCH,
) -> Completion:
    """What a server with auto-completion fills into a config; the tensors are the model's.

    Overridable initializers are no inputs here. Raises LoadError where the model cannot batch
    and the config wants it to, or where a tensor is of a kind that Triton does not serve.
    """
    if config.specified:
        text = f"skipping model configuration auto-complete for '{config.model}': "
        return Completion({}, (("I", f"{text}inputs and outputs already specified"),))
    check_kinds(inputs)
    check_kinds(outputs)
    max_batch = config.max_batch
    changes: dict[str, Any] = {}
    log: list[tuple[str, str]] = []
    if all(tensor.shape[:1] == (-1,) for tensor in (*inputs, *outputs)):
        if max_batch == 0:
            max_batch = changes["max_batch_size"] = max(0, default_max_batch)
            log.append(("W", autofilled(config.model, max_batch)))
        if max_batch > 1 and not config.scheduled:
            changes["dynamic_batching"] = {}
    elif max_batch != 0:
        raise LoadError(
            f"autofill failed for model '{config.model}': model does not support batching "
            "while non-zero max_batch_size is specified"
        )
    if not config.inputs and not config.batch_inputs:
        changes["input"] = entries(inputs, max_batch)
    if not config.outputs:
        changes["output"] = entries(outputs, max_batch)
    return Completion(changes, tuple(log))


def autofilled(model: str, max_batch: int) -> str:
    return (
        f"autofilled max_batch_size to {max_batch} for model '{model}' since batching is "
        "supporrted but no max_batch_size is specified in model configuration. Must specify "
        "max_batch_size to utilize autofill with a larger max batch size"
    )


def entries(tensors: Sequence[Tensor], max_batch: int) -> list[dict[str, Any]]:
    """The `input` or `output` section of a config."""
    named = {tensor.name: tensor for tensor in tensors}
    return [entry(named[name], max_batch) for name in hash_order(named)]


def entry(tensor: Tensor, max_batch: int) -> dict[str, Any]:
    """A scalar gets one value, which is reshaped away where there is a batch axis before it."""
    dims = tensor.shape[1:] if max_batch > 0 else tensor.shape
    whole = {"name": tensor.name, "data_type": tensor.dtype, "dims": list(dims) or [1]}
    return whole if dims or max_batch == 0 else {**whole, "reshape": {"shape": []}}


def check_entries(config: Mapping[str, Any], model: str = "") -> None:
    """Triton's own checks of what a completion can leave wrong; arguments as for `read_config`."""
    model = config.get("name") or model
    for kind in ("input", "output"):
        for section in config.get(kind, []):
            where = f"model {kind} '{section.get('name', '')}'"
            dims = [int(size) for size in section.get("dims", [])]
            if section.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
                raise LoadError(f"{where} must specify 'data_type' for {model}")
            if not dims:
                raise LoadError(f"{where} must specify 'dims' for {model}")
            if any(size < 1 and size != -1 for size in dims):
                raise LoadError(
                    f"{where} dimension must be integer >= 1, or -1 to indicate a variable-size "
                    f"dimension for {model}"
                )


# ---------------------------------------------------------------- order of completed tensors

BUCKETS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273)
"""Sizes through which a libstdc++ hash table grows when it is filled one by one."""


def hash_order(names: Mapping[str, Any]) -> list[str]:
    """As a `std::unordered_map<std::string, ...>` of libstdc++ lists them, filled in their order.

    It is one list of all nodes: a new node goes before those of its bucket, or, where there are
    none, before all. A table that is full grows, and takes its nodes over in the old order.
    """
    listed: list[tuple[int, str]] = []
    sizes = iter(BUCKETS)
    size = next(sizes)
    for name in names:
        if len(listed) == size:
            size = next(sizes, size)
            moving, listed = listed, []
            for node in moving:
                insert(listed, node, size)
        insert(listed, (hash_of(name.encode()), name), size)
    return [name for _, name in listed]


def insert(listed: list[tuple[int, str]], node: tuple[int, str], size: int) -> None:
    bucket = node[0] % size
    at = next((at for at, (other, _) in enumerate(listed) if other % size == bucket), 0)
    listed.insert(at, node)


def hash_of(data: bytes) -> int:
    """`std::hash<std::string>` of libstdc++ on 64 bits: MurmurHash64A with a seed of its own."""
    factor, mask = 0xC6A4A7935BD1E995, 2**64 - 1
    value = 0xC70F6907 ^ (len(data) * factor & mask)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * factor & mask
        value = (value ^ ((word ^ word >> 47) * factor & mask)) * factor & mask
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * factor & mask
    value = (value ^ value >> 47) * factor & mask
    return value ^ value >> 47


# ---------------------------------------------------------------- do config and model fit?


def check_model(
    config: Config,
    inputs: Sequence[Tensor],
    overridable: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> None:
    """Raises the first LoadError, in the order of the C++ backend's checks.

    The tensors are the model's; `overridable` are its initializers that are also graph inputs.
    """
    check_kinds(inputs)
    required = {tensor.name: tensor for tensor in inputs}
    check_controls(config, required)
    check_kinds(overridable)
    check_count(config, len(required))
    allowed = {**required, **{tensor.name: tensor for tensor in overridable}}
    for tensor in config.inputs:
        check_input(config, tensor, allowed)
    check_kinds(outputs)
    for tensor in config.outputs:
        check_output(config, tensor, {tensor.name: tensor for tensor in outputs})


def check_kinds(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        if not tensor.dtype.startswith("TYPE_"):
            raise LoadError(
                f"Unsupported ONNX Type '{tensor.dtype}' for I/O '{tensor.name}', "
                "expected 'ONNX_TYPE_TENSOR'.",
                "Unsupported",
            )


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
                f"{where}, the model expects data-type {onnx_word(found.dtype)} "
                f"but the model configuration specifies data-type {control.dtype}"
            )


def check_count(config: Config, provided: int) -> None:
    expected = sum(not tensor.optional for tensor in config.inputs)
    expected += len(config.controls) + config.states + config.batch_inputs
    if expected != provided:
        raise LoadError(
            f"unable to load model '{config.model}', "
            f"configuration expects {expected} inputs, model provides {provided}"
        )


def check_input(config: Config, tensor: Tensor, inputs: Mapping[str, Tensor]) -> None:
    where = f"unable to load model '{config.model}', "
    if tensor.optional and config.max_batch != 0:
        raise LoadError(
            f"{where}optional input '{tensor.name}' "
            "is not supported for models that support batching"
        )
    found = find(config, tensor, inputs, "input")
    if not tensor.ragged:
        check_shape(config, tensor, found.shape, exact=False)
    elif tensor.optional:
        raise LoadError(
            f"{where}configuration expects model provides input with shape [-1] for ragged input "
            f"'{tensor.name}', which is not supported for optional input"
        )
    elif found.shape != (-1,):
        raise LoadError(
            f"{where}configuration expects model provides input with shape [-1]  for ragged input "
            f"'{tensor.name}', model provides {shape_text(found.shape)}"
        )


def check_output(config: Config, tensor: Tensor, outputs: Mapping[str, Tensor]) -> None:
    found = find(config, tensor, outputs, "output")
    if tensor.name not in config.batch_outputs:
        check_shape(config, tensor, found.shape, exact=True)


def find(config: Config, tensor: Tensor, ports: Mapping[str, Tensor], kind: str) -> Tensor:
    """The model's tensor of the same name and type."""
    if tensor.name not in ports:
        allowed = ", ".join(sorted(ports, key=str.encode))
        raise LoadError(
            f"unexpected inference {kind} '{tensor.name}', allowed {kind}s are: {allowed}"
        )
    found = ports[tensor.name]
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
            f"model provides TYPE_{triton_word(found.dtype)}"
        )
    return found


def check_shape(config: Config, tensor: Tensor, model_shape: Shape, *, exact: bool) -> None:
    """A size that the model leaves open takes any size of the config, unless `exact`."""
    if not model_shape:
        check_scalar(config, tensor)
        return
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


def check_scalar(config: Config, tensor: Tensor) -> None:
    if any(size != 1 for size in tensor.shape):
        raise LoadError(
            f"unable to load model '{config.model}', scalar tensor '{tensor.name}', should only "
            "provide 1 in the model configuration when the model doesn't support batching. "
            f"Model configuration provided: {shape_text(tensor.shape)}."
        )


def shape_text(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def triton_word(dtype: str) -> str:
    """Triton's own name of a config type; strings are BYTES there."""
    words = {"TYPE_STRING": "BYTES", "TYPE_INVALID": "<invalid>"}
    return words.get(dtype, dtype.removeprefix("TYPE_"))


def onnx_word(dtype: str) -> str:
    """ONNX Runtime's name of a config type."""
    words = {"FP16": "FLOAT16", "FP32": "FLOAT", "FP64": "DOUBLE", "INVALID": "UNDEFINED"}
    word = dtype.removeprefix("TYPE_")
    return words.get(word, word)
