"""What a caller passes -> a request that the model takes, or a clear no. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mmctl.client.values import to_array, with_batch
from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.inference import InferRequest, InferResponse
from mmctl.tensors import Array, DType, Signature, TensorSpec


def request_for(
    model: str,
    inputs: Mapping[str, object],
    signature: Signature,
    *,
    outputs: Sequence[str] = (),
    version: str = "",
    request_id: str = "",
    parameters: Mapping[str, str | int | bool] | None = None,
    headers: Mapping[str, str] | None = None,
    splits: bool = False,
) -> InferRequest:
    """Raises InputError: unknown or missing names, values that do not fit, wrong shapes,
    different numbers of rows, more rows than the model takes, unless the caller `splits` them.
    """
    if outputs:
        _refuse_unknown(f"model `{model}`: no output", outputs, _names(signature.outputs))
    return InferRequest(
        model=model,
        inputs=arrays_for(model, inputs, signature, splits=splits),
        outputs=tuple(outputs),
        version=version,
        request_id=request_id,
        parameters=parameters or {},
        headers=headers or {},
    )


def arrays_for(
    model: str, inputs: Mapping[str, object], signature: Signature, *, splits: bool = False
) -> dict[str, Array]:
    """One array per input, in the model's order, each with a batch axis where the model batches."""
    _refuse_wrong_names(model, inputs, signature)
    arrays = {
        spec.name: _array_for(model, inputs[spec.name], spec, signature.max_batch)
        for spec in signature.inputs
        if spec.name in inputs
    }
    if signature.max_batch:
        _refuse_wrong_rows(model, arrays, None if splits else signature.max_batch)
    return arrays


def with_declared_texts(signature: Signature, declared: Signature) -> Signature:
    """The server's signature with `string` where a pipeline declares it: the server has one word
    for text and bytes.
    """
    strings = {s.name for s in declared.inputs if s.type.dtype is DType.STRING}
    return replace(
        signature,
        inputs=tuple(
            replace(spec, type=replace(spec.type, dtype=DType.STRING))
            if spec.name in strings and spec.type.dtype.is_text
            else spec
            for spec in signature.inputs
        ),
    )


def readable(response: InferResponse) -> InferResponse:
    """The response with its texts as str; a tensor that is not all UTF-8 stays bytes."""
    return replace(response, outputs=readable_outputs(response.outputs))


def readable_outputs(outputs: Mapping[str, Array]) -> dict[str, Array]:
    """The same of the outputs alone."""
    return {name: _decoded(array) for name, array in outputs.items()}


def _array_for(model: str, value: object, spec: TensorSpec, max_batch: int) -> Array:
    where = f"model `{model}`, input `{spec.name}`"
    return with_batch(to_array(value, spec, where), spec, max_batch, where)


def _refuse_wrong_names(model: str, inputs: Mapping[str, object], signature: Signature) -> None:
    if len(inputs) == len(signature.inputs) and all(s.name in inputs for s in signature.inputs):
        return  # nearly always
    _refuse_unknown(f"model `{model}`: no input", inputs, _names(signature.inputs))
    missing = [s.name for s in signature.inputs if not s.optional and s.name not in inputs]
    if missing:
        raise InputError(
            f"model `{model}`: no value for {_listed(missing)}",
            hint=f"it takes {', '.join(str(spec) for spec in signature.inputs)}",
        )


def _refuse_unknown(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    if unknown := [name for name in given if name not in known]:
        raise InputError(f"{what} {_listed(unknown)}", hint=nearest(unknown[0], known))


def _refuse_wrong_rows(model: str, arrays: Mapping[str, Array], limit: int | None) -> None:
    rows = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(rows.values())) > 1:
        told = ", ".join(f"`{name}` {count}" for name, count in rows.items())
        raise InputError(
            f"model `{model}`: the inputs have different numbers of rows: {told}",
            hint="give every input one value per row",
        )
    count = next(iter(rows.values()), 1)
    if count < 1 or (limit is not None and count > limit):
        most = f"1 to {limit}" if limit is not None else "at least 1"
        raise InputError(
            f"model `{model}`: {count} rows given, one request takes {most}",
            hint="split the rows over several requests",
        )


def _names(specs: Iterable[TensorSpec]) -> list[str]:
    return [spec.name for spec in specs]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _decoded(array: Array) -> Array:
    if array.dtype.kind != "O":
        return array
    try:
        texts = [item.decode() for item in array.ravel().tolist()]
    except UnicodeDecodeError:
        return array
    decoded = np.empty(array.size, dtype=object)
    decoded[:] = texts
    return decoded.reshape(array.shape)
