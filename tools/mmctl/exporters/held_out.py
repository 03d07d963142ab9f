"""What a model is proven with: its samples, its files and what model.yaml demands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmctl.errors import InputError
from mmctl.exporters.accuracy.data import Sample, blocks_of, refuse_shared
from mmctl.exporters.accuracy.gate import Files
from mmctl.exporters.accuracy.read import load_metric, load_samples
from mmctl.exporters.accuracy.rules import Rules
from mmctl.exporters.accuracy.speed import batch_sizes
from mmctl.exporters.onnx_file import open_session, runner_of
from mmctl.exporters.precision.base import Batch
from mmctl.exporters.precision.calibration import check_data
from mmctl.exporters.spec import Model


@dataclass(frozen=True, slots=True)
class Data:
    calibration: Sequence[Sample]
    held_out: Sequence[Sample]


def load_data(model: Model, fp32: Path) -> Data:
    """What `verify` names, checked against the file. Raises InputError."""
    verify = model.file.verify
    root = model.place.workspace.root
    assert verify.data is not None, "model.yaml was checked"
    held_out = _checked(root, verify.data, fp32, "held-out", batched=model.file.batched)
    if verify.calibration is None:
        return Data((), held_out)
    role = "calibration"
    calibration = _checked(root, verify.calibration, fp32, role, batched=model.file.batched)
    refuse_shared(calibration, held_out)
    return Data(calibration, held_out)


def _checked(root: Path, address: str, fp32: Path, role: str, *, batched: bool) -> list[Sample]:
    import onnx

    samples = load_samples(root, address)
    header = onnx.load(fp32, load_external_data=False)
    try:
        check_data(header, [sample.inputs for sample in samples], role)
        for index, sample in enumerate(samples if batched else ()):
            sample.check_rows(f"{role} batch {index}")
    except InputError as error:
        raise InputError(f"`{address}`: {error.message}", hint=error.hint) from error
    return samples


def rules_of(model: Model) -> Rules:
    verify = model.file.verify
    own = verify.metric if verify.metric and ":" in verify.metric else None
    return Rules(
        precision=model.file.precision,
        metric=verify.metric,
        least=verify.min,
        max_drop=verify.max_drop,
        classes=frozenset(model.file.labels),
        own=load_metric(model.place.workspace.root, own) if own else None,
    )


def files_of(model: Model, fp32: Path, path: Path) -> Files:
    session = open_session(fp32)
    return Files(
        variant=runner_of(open_session(path)),
        fp32=runner_of(session),
        outputs=[output.name for output in session.get_outputs()],
        batched=model.file.batched,
        max_batch=model.file.batching.max_batch,
    )


def has_gpu(model: Model) -> bool:
    """Whether a GPU is to serve it: a target has some, or model.yaml asks for one."""
    targets = model.place.workspace.targets.values()
    return model.file.instances.gpu is not None or any(target.gpus for target in targets)


def example_of(sample: Sample, *, batched: bool) -> Batch:
    return sample.cut(0, 1).inputs if batched else sample.inputs


def speed_batches(model: Model, held_out: Sequence[Sample]) -> dict[int, Batch]:
    block = max(
        blocks_of(held_out, batched=model.file.batched), key=lambda s: s.rows if s.inputs else 0
    )
    sizes = batch_sizes(model.file.batching.max_batch)
    return {size: block.repeated(size).inputs if size else block.inputs for size in sizes}
