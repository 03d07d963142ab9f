"""A model's lock and its model.yaml -> the configs to commit. Needs no weights."""

from __future__ import annotations

from dataclasses import replace

from mmctl.diagnostics import nearest
from mmctl.errors import InputError
from mmctl.exporters.precision import FP16_FILE, TENSORRT_FILE
from mmctl.exporters.spec import FILE, Model, ModelFile
from mmctl.exporters.tensorrt.target import gpu_releases
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


def _on_gpus(file: ModelFile) -> Backend | None:
    """What the GPU profile serves when it is another file than on CPUs."""
    if file.engine is not None:
        return TENSORRT
    if file.precision == "fp16":
        return replace(ONNX, filename=FP16_FILE)
    accelerators = file.optimization.gpu if file.optimization else ()
    if file.quantize.tensorrt and any(entry.name == "tensorrt" for entry in accelerators):
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
