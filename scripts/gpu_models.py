"""The models of scripts/gpu_precision: FP32 files, and what mmctl's stages make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmctl.errors import InputError
from mmctl.exporters.precision import STAGES
from mmctl.exporters.precision.base import Batch, Conversion, Quantize
from mmctl.triton.profiles import Profile
from mmctl.triton.repository import read_lock
from mmctl.workspace import read_workspace

ROOT = Path(__file__).resolve().parent.parent
CALIBRATION_BATCHES = 8
CALIBRATION_ROWS = 4
LARGEST = 32
TOKENS = 64
WORDS = 30_000
"""Below the size of MiniLM's vocabulary."""

PRECISIONS = {"fp16": "fp16", "int8": "int8-tensorrt"}
"""Precision -> stage."""

Draw = Callable[[np.random.Generator, int], Batch]


@dataclass(frozen=True, slots=True)
class Variant:
    """A file of one precision; `draw` makes inputs of some rows."""

    precision: str
    path: Path
    profiles: tuple[Profile, ...]
    draw: Draw


@dataclass(frozen=True, slots=True)
class Model:
    """`write` puts the FP32 file at a path; `shapes` are the inputs' without the batch axis."""

    write: Callable[[Path], None]
    shapes: Mapping[str, tuple[int, ...]]
    draw: Draw


def variants_of(name: str, folder: Path) -> list[Variant]:
    """FP32 first. Raises InputError when the model is not there."""
    model = MODELS[name]
    room = folder / name
    room.mkdir()
    fp32 = room / "fp32.onnx"
    model.write(fp32)
    profiles = tuple(
        Profile(key, (1, *shape), (LARGEST, *shape), (LARGEST, *shape))
        for key, shape in model.shapes.items()
    )
    draw = np.random.default_rng(1)
    batches = [model.draw(draw, CALIBRATION_ROWS) for _ in range(CALIBRATION_BATCHES)]
    made = [Variant("fp32", fp32, profiles, model.draw)]
    for precision, stage in PRECISIONS.items():
        target, work = room / f"{precision}.onnx", room / f"work_{precision}"
        work.mkdir()
        STAGES[stage].convert(Conversion(fp32, target, work, batches, Quantize(tensorrt=True)))
        made.append(Variant(precision, target, profiles, model.draw))
    return made


def _images(draw: np.random.Generator, rows: int) -> Batch:
    return {"pixels": draw.standard_normal((rows, 3, 224, 224)).astype(np.float32)}


def _sentences(draw: np.random.Generator, rows: int) -> Batch:
    ids = draw.integers(1000, WORDS, (rows, TOKENS))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _write_minilm(path: Path) -> None:
    folder = read_workspace(ROOT).models / "minilm"
    lock = read_lock(folder)
    file = folder / str(lock.version if lock else 0) / "model.onnx"
    if lock is None or lock.precision != "fp32" or not file.is_file():
        raise InputError("there is no FP32 version of `minilm`", hint="run `mmctl export minilm`")
    path.write_bytes(file.read_bytes())


def _write_resnet50(path: Path) -> None:
    import torch

    torch.manual_seed(0)
    net = _resnet50().eval()
    examples = (torch.randn(2, 3, 224, 224),)
    torch.onnx.export(
        net,
        examples,
        path,
        input_names=["pixels"],
        output_names=["scores"],
        dynamic_shapes=({0: "batch"},),
        external_data=False,
        verbose=False,
    )


def _resnet50() -> Any:
    """The topology of He et al., 2015, with stride in the 3x3 convolution."""
    import torch
    from torch import nn

    def convolution(before: int, after: int, kernel: int, stride: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(after),
        )

    class Bottleneck(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                convolution(before, width, 1),
                nn.ReLU(),
                convolution(width, width, 3, stride),
                nn.ReLU(),
                convolution(width, 4 * width, 1),
            )
            same = before == 4 * width and stride == 1
            self.short = nn.Identity() if same else convolution(before, 4 * width, 1, stride)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.short(x))

    layers: list[Any] = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(blocks):
            layers.append(Bottleneck(before, width, stride if index == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


MODELS: dict[str, Model] = {
    "resnet50": Model(_write_resnet50, {"pixels": (3, 224, 224)}, _images),
    "minilm": Model(
        _write_minilm, {"input_ids": (TOKENS,), "attention_mask": (TOKENS,)}, _sentences
    ),
}
