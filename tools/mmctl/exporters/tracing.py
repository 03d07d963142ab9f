"""A torch module -> ONNX graph, by torch.export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmctl.errors import InputError
from mmctl.exporters.graph import name_tensors, strip_notes
from mmctl.exporters.samples import Example
from mmctl.exporters.traced import ModelFails, Runner, Traced
from mmctl.tensors import Array

BATCH = "batch"
OPSET = 20
"""Needs ONNX Runtime 1.18, Triton 24.05. Newer ones have ops that TensorRT cannot parse."""


def trace(module: Any, example: Example, outputs: Sequence[str] = (), *, batched: bool) -> Traced:
    """Trace `module`, called with the example's arrays by keyword.

    `outputs` names what it returns, in order; not needed when it returns a dict. Raises
    InputError when torch cannot export it.
    """
    import torch

    module.eval()
    inputs = {name: torch.from_numpy(array) for name, array in example.arrays.items()}
    names = _output_names(_call(module, inputs), outputs)
    if both := sorted(set(names) & inputs.keys()):
        raise InputError(
            f"`{both[0]}` names both an input and an output", hint="rename one of them"
        )
    axes: dict[str, dict[int, str]] = {
        name: {**({0: BATCH} if batched else {}), **example.axes.get(name, {})} for name in inputs
    }
    try:
        program = torch.onnx.export(
            module,
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes=axes,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        raise _cannot_export(error) from error
    graph = program.model_proto
    # torch keeps the order, but its names may differ, and clash with those of inner tensors.
    name_tensors(graph, list(inputs), names)
    strip_notes(graph)
    _check_opset(graph)
    return Traced(graph, _runner_of(module), example, batch_axis=BATCH)


def _call(module: Any, inputs: Mapping[str, Any]) -> Any:
    import torch

    try:
        with torch.no_grad():
            return module(**inputs)
    except Exception as error:  # the user's code may raise anything
        raise InputError(
            f"the module fails on its own example inputs: {_summary(error)}",
            hint="call it with them in Python first",
        ) from error


def _output_names(result: Any, given: Sequence[str]) -> tuple[str, ...]:
    own = tuple(str(key) for key in result) if isinstance(result, Mapping) else ()
    names = tuple(given) or own
    count = len(_tensors_in(result))
    if not names:
        raise InputError(
            f"the module returns {count} tensors without names",
            hint="name them in order, `outputs: [...]` under `source:`, or return a dict",
        )
    if len(names) != count:
        raise InputError(f"`outputs` names {len(names)} tensors, the module returns {count}")
    return names


def _tensors_in(result: Any) -> list[Any]:
    """What a module returns, in the order in which torch exports it."""
    import torch

    leaves: list[Any] = torch.utils._pytree.tree_leaves(result)
    if strange := [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]:
        raise InputError(
            f"the module returns a {type(strange[0]).__name__} among its outputs",
            hint="return tensors only",
        )
    return leaves


def _runner_of(module: Any) -> Runner:
    import torch

    def run(arrays: Mapping[str, Array]) -> Sequence[Array]:
        inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        try:
            with torch.no_grad():
                return [tensor.numpy() for tensor in _tensors_in(module(**inputs))]
        except Exception as error:  # the user's code may raise anything
            raise ModelFails(_summary(error)) from error

    return run


def _cannot_export(error: Exception) -> InputError:
    """torch's own message is a screen of advice; what went wrong is in the cause."""
    lines = [line.strip(" -") for line in str(error.__cause__ or error).splitlines()]
    reason = " ".join([line for line in lines if line][:3])
    hint = None
    if "batch" in reason or "static shape" in reason or "data-dependent" in reason:
        hint = "write the module without Python code that looks at values or at the batch size"
    return InputError(f"torch cannot export the module: {reason}", hint=hint)


def _check_opset(graph: Any) -> None:
    """torch only logs when it cannot convert to the opset that was asked for."""
    found = {entry.domain: entry.version for entry in graph.opset_import}.get("")
    if found != OPSET:
        raise InputError(f"torch wrote opset {found} where {OPSET} was asked for")


def _summary(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
