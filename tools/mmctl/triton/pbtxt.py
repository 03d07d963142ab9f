"""config.pbtxt <-> ModelConfig, through Triton's own protobuf. The only module that knows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mmctl.errors import InputError
from mmctl.tensors import Signature, TensorSpec, TensorType, dtype_from_triton
from mmctl.triton.config import (
    Accelerator,
    ConfigTensor,
    DynamicBatching,
    EnsembleStep,
    InstanceGroup,
    ModelConfig,
    Optimization,
    QueuePolicy,
    Warmup,
    WarmupInput,
)

# The graph optimisation level is an int32 whose 0 ("full") proto3 text drops; that is its default.


def render_config(config: ModelConfig) -> str:
    """Text of config.pbtxt; equal configs give equal text. `max_batch_size` is always written."""
    return render_message(_message_of(config))


def parse_config(text: str, *, where: str) -> ModelConfig:
    """Raises InputError with protobuf's own line and column."""
    return config_of(parse_message(text, where))


def pin_config(
    text: str,
    *,
    where: str,
    versions: tuple[int, ...],
    calls: Mapping[str, int],
    name: str = "",
    names: Mapping[str, str] | None = None,
) -> str:
    """The config as a served tree has it: a version policy, and every ensemble step pinned.

    `calls` maps a called model to the version that serves it, `names` to the model that is called
    in its place. Works on any config, ours or not: no field is lost, because the message itself is
    changed.
    """
    message = parse_message(text, where)
    message.name = name or message.name
    if versions:
        message.version_policy.specific.versions[:] = versions
    for step in message.ensemble_scheduling.step:
        step.model_version = calls.get(step.model_name, step.model_version)
        step.model_name = (names or {}).get(step.model_name, step.model_name)
    return render_message(message)


def with_parameter(text: str, key: str, value: str, *, where: str) -> str:
    """The config with this parameter, or without it where `value` is empty."""
    message = parse_message(text, where)
    if value:
        message.parameters[key].string_value = value
    else:
        message.parameters.pop(key, None)
    return render_message(message)


def with_setting(
    text: str, *, where: str, max_batch: int, instances: int | None = None, delay_us: int = 0
) -> str:
    """The config of the same model served in another way; warm-up and preferred batches stay
    within the new size. `max_batch` 0 leaves batching as it is, `instances` None their number.
    """
    message = parse_message(text, where)
    if max_batch:
        message.max_batch_size = max_batch
        for warm_up in message.model_warmup:
            warm_up.batch_size = min(warm_up.batch_size, max_batch)
        if not message.HasField("ensemble_scheduling"):
            _set_batching(message, max_batch, delay_us)
    if instances is not None:
        if not message.instance_group:
            message.instance_group.add(kind=_pb().ModelInstanceGroup.Kind.Value("KIND_CPU"))
        del message.instance_group[1:]
        message.instance_group[0].count = instances
    return render_message(message)


def _set_batching(message: Any, max_batch: int, delay_us: int) -> None:
    """Requests of one row each cannot be joined: what waits in a queue for that waits in vain."""
    if max_batch == 1 and not message.dynamic_batching.HasField("default_queue_policy"):
        message.ClearField("dynamic_batching")
        return
    message.dynamic_batching.max_queue_delay_microseconds = delay_us
    fitting = [n for n in message.dynamic_batching.preferred_batch_size if n <= max_batch]
    message.dynamic_batching.preferred_batch_size[:] = fitting
    message.dynamic_batching.SetInParent()


def without_gpus(text: str, *, where: str) -> str:
    """The config for a server without GPUs; unchanged where no instance asks for one."""
    message = parse_message(text, where)
    kinds = _pb().ModelInstanceGroup.Kind
    moved = [group for group in message.instance_group if _asks_for_gpu(kinds, group)]
    for group in moved:
        group.kind = kinds.Value("KIND_CPU")
        del group.gpus[:]
    return render_message(message) if moved else text


def _asks_for_gpu(kinds: Any, group: Any) -> bool:
    kind = kinds.Name(group.kind)
    return kind == "KIND_GPU" or (kind == "KIND_AUTO" and bool(group.gpus))


def without_warm_up(text: str, *, where: str) -> str:
    """The config of the same model that answers its first request cold."""
    message = parse_message(text, where)
    del message.model_warmup[:]
    return render_message(message)


def called_models(text: str, *, where: str) -> tuple[str, ...]:
    """Models that an ensemble's config calls, each once, in order of the steps."""
    steps = parse_message(text, where).ensemble_scheduling.step
    return tuple(dict.fromkeys(step.model_name for step in steps))


def signature_of(config: ModelConfig) -> Signature:
    """What callers of a model with this config send and get. `dims: [1]` reads as a bare dtype."""
    return Signature(
        inputs=tuple(_spec_of(tensor) for tensor in config.inputs),
        outputs=tuple(_spec_of(tensor) for tensor in config.outputs),
        max_batch=config.max_batch_size,
    )


def _spec_of(tensor: ConfigTensor) -> TensorSpec:
    dims = () if tensor.dims == (1,) else tensor.dims
    return TensorSpec(tensor.name, TensorType(tensor.dtype, dims), tensor.optional)


def new_message() -> Any:
    """An empty ModelConfig, Triton's own message."""
    return _pb().ModelConfig()


def message_of(descriptor: Any) -> Any:
    """An empty message of the kind that a descriptor of ModelConfig describes."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)()


def json_of_message(message: Any) -> dict[str, Any]:
    """The fields that are set, in Protobuf's JSON form and under their own names."""
    from google.protobuf import json_format

    fields: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return fields


def add_json(message: Any, fields: Mapping[str, Any]) -> None:
    """Set fields that are given in JSON form; lists are added to what is there."""
    from google.protobuf import json_format

    json_format.ParseDict(fields, message)


def _pb() -> Any:
    from tritonclient.grpc import model_config_pb2  # 0.2 s: only when a config is at hand

    return model_config_pb2


def render_message(message: Any) -> str:
    """Text of config.pbtxt for Triton's own message."""
    from google.protobuf import text_format

    body: str = text_format.MessageToString(message, use_short_repeated_primitives=True)
    if not message.max_batch_size:
        # proto3 text drops a zero; a reader should see that batching is off on purpose.
        head, line, rest = body.partition("\n")
        body = f"{head}{line}max_batch_size: 0\n{rest}"
    return body


def parse_message(text: str, where: str) -> Any:
    """Triton's own message, every field kept. Raises InputError with protobuf's line and column."""
    from google.protobuf import text_format

    message = _pb().ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        place = re.sub(r"^(\d+:\d+) : ", r"\1: ", str(error))
        raise InputError(
            f"{where}:{place}", hint="compare the line with Triton's model_config.proto"
        ) from error
    return message


def _message_of(config: ModelConfig) -> Any:
    pb = _pb()
    message = pb.ModelConfig(
        name=config.name,
        platform=config.platform,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        default_model_filename=config.default_model_filename,
        input=[_tensor_message(pb.ModelInput, tensor) for tensor in config.inputs],
        output=[_tensor_message(pb.ModelOutput, tensor) for tensor in config.outputs],
        instance_group=[_instances_message(pb, group) for group in config.instances],
        model_warmup=[_warmup_message(pb, warmup) for warmup in config.warmups],
    )
    if config.versions:
        message.version_policy.specific.versions[:] = config.versions
    if config.batching is not None:
        _fill_batching(message.dynamic_batching, config.batching)
    for step in config.steps:
        message.ensemble_scheduling.step.add(
            model_name=step.model,
            model_version=step.version,
            input_map=dict(step.inputs),
            output_map=dict(step.outputs),
        )
    for key in sorted(config.parameters):
        message.parameters[key].string_value = config.parameters[key]
    if config.optimization is not None:
        _fill_optimization(message.optimization, config.optimization)
    if config.response_cache:
        message.response_cache.enable = True
    if config.decoupled:
        message.model_transaction_policy.decoupled = True
    return message


def _tensor_message(kind: Any, tensor: ConfigTensor) -> Any:
    message = kind(name=tensor.name, data_type=tensor.dtype.triton, dims=tensor.dims)
    if tensor.reshape is not None:
        message.reshape.SetInParent()
        message.reshape.shape[:] = tensor.reshape
    if tensor.optional:
        message.optional = True
    if tensor.ragged:
        message.allow_ragged_batch = True
    if tensor.label_filename:
        message.label_filename = tensor.label_filename
    return message


def _instances_message(pb: Any, group: InstanceGroup) -> Any:
    return pb.ModelInstanceGroup(count=group.count, kind=group.kind, gpus=group.gpus)


def _fill_batching(message: Any, batching: DynamicBatching) -> None:
    message.SetInParent()
    message.preferred_batch_size[:] = batching.preferred
    message.max_queue_delay_microseconds = batching.max_delay_us
    message.preserve_ordering = batching.preserve_ordering
    if (queue := batching.queue) is not None:
        policy = message.default_queue_policy
        policy.SetInParent()
        policy.timeout_action = policy.TimeoutAction.Value(queue.action)
        policy.default_timeout_microseconds = queue.timeout_us
        policy.allow_timeout_override = queue.allow_override


def _fill_optimization(message: Any, optimization: Optimization) -> None:
    message.SetInParent()
    if optimization.graph_level is not None:
        message.graph.SetInParent()
        message.graph.level = optimization.graph_level
    for field, accelerators in (
        ("gpu_execution_accelerator", optimization.gpu),
        ("cpu_execution_accelerator", optimization.cpu),
    ):
        for accelerator in accelerators:
            getattr(message.execution_accelerators, field).add(
                name=accelerator.name, parameters=dict(accelerator.parameters)
            )


def _warmup_message(pb: Any, warmup: Warmup) -> Any:
    message = pb.ModelWarmup(name=warmup.name, batch_size=warmup.batch_size, count=warmup.count)
    for name, tensor in warmup.inputs.items():
        entry = message.inputs[name]
        entry.data_type = pb.DataType.Value(tensor.dtype.triton)
        entry.dims[:] = tensor.dims
        match tensor.data:
            case "zero":
                entry.zero_data = True
            case "random":
                entry.random_data = True
            case file:
                entry.input_data_file = file
    return message


def config_of(message: Any) -> ModelConfig:
    """A ModelConfig message as values. Raises InputError for a tensor without `data_type`."""
    return ModelConfig(
        name=message.name,
        platform=message.platform,
        backend=message.backend,
        max_batch_size=message.max_batch_size,
        default_model_filename=message.default_model_filename,
        inputs=tuple(_tensor_of(tensor) for tensor in message.input),
        outputs=tuple(_tensor_of(tensor) for tensor in message.output),
        batching=_batching_of(message.dynamic_batching)
        if message.HasField("dynamic_batching")
        else None,
        instances=tuple(_instances_of(group) for group in message.instance_group),
        versions=tuple(message.version_policy.specific.versions),
        steps=tuple(
            EnsembleStep(s.model_name, dict(s.input_map), dict(s.output_map), s.model_version)
            for s in message.ensemble_scheduling.step
        ),
        parameters={key: value.string_value for key, value in message.parameters.items()},
        optimization=_optimization_of(message.optimization)
        if message.HasField("optimization")
        else None,
        warmups=tuple(_warmup_of(warmup) for warmup in message.model_warmup),
        response_cache=message.response_cache.enable,
        decoupled=message.model_transaction_policy.decoupled,
    )


def _tensor_of(message: Any) -> ConfigTensor:
    word = _pb().DataType.Name(message.data_type)
    if word == "TYPE_INVALID":
        raise InputError(f"tensor `{message.name}` of the config has no `data_type`")
    return ConfigTensor(
        name=message.name,
        dtype=dtype_from_triton(word),
        dims=tuple(message.dims),
        reshape=tuple(message.reshape.shape) if message.HasField("reshape") else None,
        optional=getattr(message, "optional", False),
        ragged=getattr(message, "allow_ragged_batch", False),
        label_filename=getattr(message, "label_filename", ""),
    )


def _instances_of(message: Any) -> InstanceGroup:
    kind = type(message).Kind.Name(message.kind)
    return InstanceGroup(message.count, kind, tuple(message.gpus))


def _batching_of(message: Any) -> DynamicBatching:
    queue = None
    if message.HasField("default_queue_policy"):
        policy = message.default_queue_policy
        queue = QueuePolicy(
            policy.default_timeout_microseconds,
            policy.TimeoutAction.Name(policy.timeout_action),
            policy.allow_timeout_override,
        )
    return DynamicBatching(
        max_delay_us=message.max_queue_delay_microseconds,
        preferred=tuple(message.preferred_batch_size),
        preserve_ordering=message.preserve_ordering,
        queue=queue,
    )


def _optimization_of(message: Any) -> Optimization:
    accelerators = message.execution_accelerators
    return Optimization(
        graph_level=message.graph.level if message.HasField("graph") else None,
        gpu=tuple(_accelerator_of(a) for a in accelerators.gpu_execution_accelerator),
        cpu=tuple(_accelerator_of(a) for a in accelerators.cpu_execution_accelerator),
    )


def _accelerator_of(message: Any) -> Accelerator:
    return Accelerator(message.name, dict(message.parameters))


def _warmup_of(message: Any) -> Warmup:
    inputs = {}
    for name, tensor in message.inputs.items():
        dtype = dtype_from_triton(_pb().DataType.Name(tensor.data_type))
        data = tensor.input_data_file or ("random" if tensor.random_data else "zero")
        inputs[name] = WarmupInput(dtype, tuple(tensor.dims), data)
    return Warmup(message.name, message.batch_size, inputs, message.count or 1)
