"""A model's lock and its model.yaml -> the configs to commit. Needs no weights."""

from __future__ import annotations

from dataclasses import replace

from mmctl.diagnostics import Finding, nearest
from mmctl.documents import read_document
from mmctl.errors import InputError
from mmctl.exporters.precision import FP16_FILE, TENSORRT_FILE
from mmctl.exporters.spec import FILE, Model, ModelFile
from mmctl.exporters.tensorrt.target import gpu_releases
from mmctl.lint.engines import warn_of_cpu_int8
from mmctl.tensors import Signature
from mmctl.triton.generate import ONNX, TENSORRT, Backend, configs_for
from mmctl.triton.pbtxt import render_config
from mmctl.triton.repository import Lock


def configs_of(model: Model, lock: Lock) -> dict[str, str]:
    """Texts by path inside the model's folder. Raises InputError when lock and file disagree."""
    file = model.file
    if file.batched != (lock.signature.max_batch > 0):
        made = "without" if file.batched else "with"
        raise InputError(
            f"{model.place.shown}/{FILE}: the locked version was exported {made} a batch axis",
            hint=f"run `mmctl export {model.name}`",
        )
    signature = replace(lock.signature, max_batch=file.batching.max_batch * file.batched)
    _check_names(model, signature)
    configs = configs_for(
        model.name,
        signature,
        file.source.backend,
        file,
        gpu=_on_gpus(file),
        releases=gpu_releases(model.place.workspace),
    )
    return {path: render_config(config) for path, config in configs.items()}


def doubts_about(model: Model) -> list[Finding]:
    """Warnings about configs that are legal, and do less than they seem to."""
    file = model.file
    if file.precision != "int8" or not _asks_tensorrt(file) or _on_gpus(file) is not None:
        return []
    path = model.place.folder / FILE
    document = read_document(path, shown=model.place.workspace.shown(path))
    return [warn_of_cpu_int8(document.at_key("optimization", "gpu"), model.name, ONNX.filename)]


def _asks_tensorrt(file: ModelFile) -> bool:
    accelerators = file.optimization.gpu if file.optimization else ()
    return any(entry.name == "tensorrt" for entry in accelerators)


def _on_gpus(file: ModelFile) -> Backend | None:
    """What the GPU profile serves when it is another file than on CPUs."""
    if file.engine is not None:
        return TENSORRT
    if file.precision == "fp16":
        return replace(ONNX, filename=FP16_FILE)
    if file.quantize.tensorrt and _asks_tensorrt(file):
        return replace(ONNX, filename=TENSORRT_FILE)
    return None


def _check_names(model: Model, signature: Signature) -> None:
    """Options that name tensors, which only the exported model knows."""
    outputs = [spec.name for spec in signature.outputs]
    inputs = [spec.name for spec in signature.inputs]
    wanted = [("labels", name, outputs) for name in model.file.labels]
    wanted += [("shapes", name, inputs) for name in model.file.shapes]
    wanted += [("warmup", name, inputs) for entry in model.file.warmup for name in entry.dims]
    for option, name, known in wanted:
        if name not in known:
            raise InputError(
                f"{model.place.shown}/{FILE}: `{option}` names `{name}`, which the model does "
                "not have",
                hint=nearest(name, known),
            )
