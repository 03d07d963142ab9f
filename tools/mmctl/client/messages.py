"""Triton's protobuf messages <-> our values. Pure: `transport` brings the message classes."""

from __future__ import annotations

from typing import Any

from mmctl.client.status import Counts, IndexEntry
from mmctl.errors import InferenceError, InputError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import DType, Signature, TensorSpec, TensorType, dtype_from_triton, dtype_of
from mmctl.triton.repository import CANARY
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


def share_of(config: Any) -> float:
    """Of a ModelConfig: how many percent of the requests this candidate takes; 0 for none."""
    try:
        return float(config.parameters[CANARY].string_value) if CANARY in config.parameters else 0.0
    except ValueError:
        return 0.0


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
