"""Triton's protobuf messages <-> our values. Pure: `transport` brings the message classes."""

from __future__ import annotations

from typing import Any

from mmctl.cache.keys import Identity
from mmctl.client.description import Candidacy, Description
from mmctl.client.status import Counts, IndexEntry
from mmctl.errors import InferenceError, InputError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import DType, Signature, TensorSpec, TensorType, dtype_from_triton, dtype_of
from mmctl.triton.repository import CANARY, DIGEST, SHADOW, digests_of
from mmctl.wire import decode, encode, encoded_size

MAX_MESSAGE_BYTES = 2**31 - 1
_BESIDE_TENSORS_BYTES = 64 * 1024  # names, shapes and parameters

_PARAMETER_FIELDS = {bool: "bool_param", int: "int64_param", str: "string_param"}


def request_message(kind: Any, request: InferRequest) -> Any:
    """`kind` is ModelInferRequest. Raises InputError when gRPC could not send it."""
    _refuse_oversize(request)
    message = kind(
        model_name=request.model,
        model_version=request.version,
        id=request.request_id,
        raw_input_contents=[encode(array) for array in request.inputs.values()],
    )
    for name, array in request.inputs.items():
        message.inputs.add(name=name, datatype=dtype_of(array.dtype).wire, shape=array.shape)
    for name in request.outputs:
        message.outputs.add(name=name)
    for key, value in request.parameters.items():
        setattr(message.parameters[key], _PARAMETER_FIELDS[type(value)], value)
    return message


def _refuse_oversize(request: InferRequest) -> None:
    """gRPC would say so too, but only after all of it was copied."""
    size = sum(encoded_size(array) for array in request.inputs.values())
    if size > MAX_MESSAGE_BYTES - _BESIDE_TENSORS_BYTES:
        raise InputError(
            f"model `{request.model}`: the request has {size / 1e9:.2f} GB, and one gRPC message "
            f"may have {MAX_MESSAGE_BYTES / 1e9:.2f} GB",
            hint="send fewer rows in one request",
        )


def response_of(message: Any) -> InferResponse:
    try:
        outputs = {
            output.name: decode(raw, output.datatype, tuple(output.shape))
            for output, raw in zip(message.outputs, message.raw_output_contents, strict=True)
        }
    except ValueError as error:
        raise InferenceError(
            f"model `{message.model_name}`: its answer cannot be read: {error}"
        ) from error
    return InferResponse(outputs, message.model_name, message.model_version)


def signature_of(config: Any) -> Signature:
    """Of a ModelConfig: `dims: [1]` is a bare dtype, as everywhere."""
    return Signature(
        inputs=tuple(_spec_of(tensor) for tensor in config.input),
        outputs=tuple(_spec_of(tensor) for tensor in config.output),
        max_batch=config.max_batch_size,
    )


def _spec_of(tensor: Any) -> TensorSpec:
    """Text is `bytes` here, which takes both: Triton cannot say that it must be UTF-8."""
    words = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    dtype = dtype_from_triton(words[tensor.data_type].name)
    dims = () if tuple(tensor.dims) == (1,) else tuple(tensor.dims)
    kind = TensorType(DType.BYTES if dtype.is_text else dtype, dims)
    return TensorSpec(tensor.name, kind, getattr(tensor, "optional", False))


def entries_of(message: Any) -> tuple[IndexEntry, ...]:
    """Of a RepositoryIndexResponse."""
    return tuple(IndexEntry(m.name, m.version, m.state, m.reason) for m in message.models)


def description_of(config: Any, version: str = "") -> Description:
    """Of a ModelConfig. `version` is the one that is meant, "" for the one that the server takes:
    that is known here where the config names the versions that it serves.
    """
    signature = signature_of(config)
    version = version or max(map(str, config.version_policy.specific.versions), key=int, default="")
    number = int(version) if version.isdecimal() else 0
    digest = digests_of(_parameter(config, DIGEST)).get(number, "")
    return Description(
        signature=signature,
        identity=Identity(config.name, version, digest, platform_of(config)),
        decoupled=config.model_transaction_policy.decoupled,
        stateful=config.HasField("sequence_batching"),
        ensemble=config.HasField("ensemble_scheduling"),
        mixes_up=config.response_cache.enable and not _is_told_apart(signature, digest),
    )


def platform_of(config: Any) -> str:
    """What runs the model, and with which precision where the config says it."""
    parts = [config.backend or config.platform]
    accelerators = config.optimization.execution_accelerators
    for entry in (*accelerators.gpu_execution_accelerator, *accelerators.cpu_execution_accelerator):
        parts.append(f"{entry.name} {sorted(entry.parameters.items())}")
    return ", ".join(parts)


def latest(versions: Any) -> str:
    """The version that Triton takes where none is named, of all that are ready."""
    return max(versions, key=int, default="")


def _is_told_apart(signature: Signature, digest: str) -> bool:
    """Whether Triton's cache, which compares neither shapes nor outputs nor what a version is made
    from, may be on: as mmctl itself allows it.
    """
    free = any(-1 in spec.type.dims for spec in signature.inputs)
    return bool(digest) and not free and len(signature.outputs) == 1


def candidacy_of(config: Any) -> Candidacy:
    """Of the ModelConfig of a candidate."""
    return Candidacy(_percent(config, CANARY), _percent(config, SHADOW))


def share_of(config: Any) -> float:
    """Of a ModelConfig: how many percent of the requests this candidate takes; 0 for none."""
    return candidacy_of(config).share


def _percent(config: Any, name: str) -> float:
    try:
        return float(_parameter(config, name) or 0)
    except ValueError:
        return 0.0


def _parameter(config: Any, name: str) -> str:
    return str(config.parameters[name].string_value) if name in config.parameters else ""


def counts_of(message: Any) -> Counts:
    """Of a ModelStatisticsResponse: all of its versions together."""
    stats = [m.inference_stats for m in message.model_stats]
    return Counts(
        sum(s.success.count + s.fail.count for s in stats),
        sum(s.fail.count for s in stats),
        sum(s.success.ns for s in stats),
    )


def loaded_of(message: Any) -> tuple[IndexEntry, ...]:
    """Of a ModelStatisticsResponse: the versions that are loaded, and no others."""
    return tuple(IndexEntry(m.name, m.version, "READY") for m in message.model_stats)
