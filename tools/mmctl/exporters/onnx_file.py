"""model.onnx as it is served: names, shapes and proof of what its source gave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmctl.errors import InputError, Refused
from mmctl.exporters.base import Evidence, Exported, Task
from mmctl.exporters.element_types import dtype_of_onnx
from mmctl.exporters.gates import UNBATCHED_HINT, prove
from mmctl.exporters.graph import add_value_axes, real_inputs, rename_tensors
from mmctl.exporters.traced import ModelFails, Runner, Traced
from mmctl.files import writing_to
from mmctl.tensors import Array, Signature, TensorSpec, TensorType
from mmctl.triton.generate import ONNX

MAX_BYTES = 2**31 - 1
"""Protobuf cannot hold more in one file."""


def prove_and_save(traced: Traced, task: Task) -> Exported:
    """Write the served model.onnx into `task.out`, then pass it through the gates."""
    graph = traced.graph
    rename_tensors(graph, task.rename)
    widened = add_value_axes(graph, batched=task.batched)
    path = task.out / ONNX.filename
    save_graph(graph, path)
    checked = check_file(path)
    session = open_session(path)
    signature = signature_of_session(session, batched=task.batched)
    if task.batched:
        _refuse_other_axis("input", session.get_inputs(), None)
    outputs = [output.name for output in session.get_outputs()]
    inputs = dict(zip(traced.example.arrays, (v.name for v in real_inputs(graph)), strict=True))
    served = _in_source_terms(runner_of(session), inputs, outputs, widened)
    proved = prove(
        served,
        traced.source,
        outputs,
        traced.example,
        batched=task.batched,
        tolerance=task.tolerance,
    )
    if task.batched:
        _refuse_other_axis("output", session.get_outputs(), traced.batch_axis)
    return Exported(signature, (checked, *proved))


def load_graph(path: Path) -> Any:
    """The file as onnx.ModelProto, external data included. Raises InputError."""
    import onnx

    try:
        return onnx.load(path)
    except Exception as error:  # protobuf's, the checker's and the disk's own
        raise InputError(f"{path.name} cannot be read as ONNX: {first_line(error)}") from error


def save_graph(graph: Any, path: Path) -> None:
    import onnx

    if graph.ByteSize() > MAX_BYTES:
        raise InputError(
            "the model is larger than 2 GiB, which one ONNX file cannot hold",
            hint="split the model, or serve it with a `python` source",
        )
    with writing_to(path):
        onnx.save(graph, path)


def check_file(path: Path) -> Evidence:
    """The gate of the ONNX checker, with type and shape inference."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise Refused(f"the ONNX checker refuses the file: {first_line(error)}") from error
    header = onnx.load(path, load_external_data=False)
    opset = next((o.version for o in header.opset_import if o.domain in ("", "ai.onnx")), 0)
    return {"gate": "onnx checker", "ir": header.ir_version, "opset": opset}


def open_session(path: Path) -> Any:
    """An ONNX Runtime session on the CPU. Raises InputError when it cannot load the file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base
        raise InputError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load {path.name}: {first_line(error)}"
        ) from error


def runner_of(session: Any) -> Runner:
    outputs = [output.name for output in session.get_outputs()]

    def run(arrays: Mapping[str, Array]) -> Sequence[Array]:
        try:
            return [np.asarray(array) for array in session.run(outputs, dict(arrays))]
        except Exception as error:  # its exceptions have no common base
            raise ModelFails(first_line(error)) from error

    return run


def signature_of_session(session: Any, *, batched: bool) -> Signature:
    """What ONNX Runtime will take and give; free axes are -1, and one value a row is bare.

    Raises InputError, every unfit tensor at once.
    """
    tensors = (*session.get_inputs(), *session.get_outputs())
    specs = [_spec_of(tensor, batched=batched) for tensor in tensors]
    if bad := [spec.name for spec in specs if not _is_identifier(spec.name)]:
        raise InputError(
            f"tensor names that are no identifiers: {', '.join(f'`{name}`' for name in bad)}",
            hint=f'add `rename: {{"{bad[0]}": a_better_name}}` to model.yaml',
        )
    if empty := [spec for spec in specs if 0 in spec.type.dims]:
        raise InputError(f"`{empty[0].name}` has an axis of length 0, which Triton cannot serve")
    count = len(session.get_inputs())
    return Signature(tuple(specs[:count]), tuple(specs[count:]), max_batch=int(batched))


def _spec_of(tensor: Any, *, batched: bool) -> TensorSpec:
    dims = tuple(
        dim if isinstance(dim, int) and dim >= 0 else -1 for dim in tensor.shape[int(batched) :]
    )
    return TensorSpec(tensor.name, TensorType(dtype_of_onnx(tensor), () if dims == (1,) else dims))


def _is_identifier(name: str) -> bool:
    return name.isascii() and name.isidentifier()


def _refuse_other_axis(kind: str, tensors: Sequence[Any], batch: str | None) -> None:
    """A batch needs a free first axis, and one called `batch` where the graph names axes right."""
    for tensor in tensors:
        first = tensor.shape[0] if tensor.shape else None
        if isinstance(first, int) or not tensor.shape or (batch and first != batch):
            found = f"`{first}` as first axis" if tensor.shape else "no axis"
            raise Refused(
                f"{kind} `{tensor.name}` has {found}, so it cannot carry a batch",
                hint=UNBATCHED_HINT,
            )


def _in_source_terms(
    run: Runner, inputs: Mapping[str, str], outputs: Sequence[str], widened: set[str]
) -> Runner:
    """The served file called as its source is: source's names, without the axes that we added."""

    def run_as_source(arrays: Mapping[str, Array]) -> Sequence[Array]:
        given = {
            inputs[name]: array[..., None] if inputs[name] in widened else array
            for name, array in arrays.items()
        }
        return [
            array[..., 0] if name in widened else array
            for name, array in zip(outputs, run(given), strict=True)
        ]

    return run_as_source


def first_line(error: Exception) -> str:
    """What it says without ONNX Runtime's prefix, `[ONNXRuntimeError] : 1 : FAIL : `."""
    lines = re.sub(r"^\[ONNXRuntimeError\]( : \w+){2} : ", "", str(error).strip()).splitlines()
    return lines[0] if lines else type(error).__name__
