"""Models to try precision on: a small real network with labels, and one made to overflow."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx_samples import onnx_model

SIDE = 32
EPOCHS = 4
ROWS = 32
TEST_SHARE = 0.4

Floats = npt.NDArray[np.float32]
Node = tuple[str, list[str], list[str], dict[str, Any]]


@dataclass(frozen=True)
class Digits:
    """Scikit-learn's handwritten digits: images [rows, 1, 32, 32], values -1 to 1."""

    train: Floats
    train_labels: npt.NDArray[np.int64]
    test: Floats
    test_labels: npt.NDArray[np.int64]


@functools.cache
def digits() -> Digits:
    """1078 images to learn and calibrate on, 719 to test on; always the same ones."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = np.kron(found.images[order] / 8 - 1, np.ones((SIDE // 8, SIDE // 8)))
    images = images[:, None].astype(np.float32)
    labels = found.target[order].astype(np.int64)
    split = round(len(labels) * (1 - TEST_SHARE))
    return Digits(images[:split], labels[:split], images[split:], labels[split:])


@functools.cache
def digits_cnn() -> bytes:
    """A ResNet of 32, 64 and 128 channels as ONNX: `image` float [batch, 1, 32, 32] to `logits`
    [batch, 10]. About 0.99 of the test images are right. Trained in about 12 seconds, once.
    """
    import torch

    data = digits()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums everywhere, and no waiting for busy cores
    torch.manual_seed(0)
    net = _residual_net()
    _train(net, torch.from_numpy(data.train), torch.from_numpy(data.train_labels))
    torch.set_num_threads(threads)
    program = torch.onnx.export(
        net,
        (torch.from_numpy(data.train[:2]),),
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=({0: "batch"},),
        verbose=False,
    )
    file = io.BytesIO()
    program.save(file)
    return file.getvalue()


def _train(net: Any, images: Any, labels: Any) -> None:
    import torch

    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    steps = EPOCHS * (len(labels) // ROWS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _epoch in range(EPOCHS):
        order = torch.randperm(len(labels))
        for start in range(0, len(labels) - ROWS + 1, ROWS):
            rows = order[start : start + ROWS]
            loss = torch.nn.functional.cross_entropy(net(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()


def _residual_net() -> Any:
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.first = _convolution(before, after, 3, stride)
            self.second = _convolution(after, after, 3, 1)
            self.short = (
                nn.Identity()
                if (before, stride) == (after, 1)
                else _convolution(before, after, 1, stride)
            )

        def forward(self, x: Any) -> Any:
            return (self.second(self.first(x).relu()) + self.short(x)).relu()

    return nn.Sequential(
        _convolution(1, 32, 3, 1),
        nn.ReLU(),
        Block(32, 32, 1),
        Block(32, 64, 2),
        Block(64, 128, 2),
        Block(128, 128, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def _convolution(before: int, after: int, kernel: int, stride: int) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after)
    )


OVERFLOW_WIDTH = 64


def overflowing() -> bytes:
    """`x` float [batch, 64] to `y` [batch, 64]: right in FP32, and beyond 65504 half way through,
    so that FP16 makes it NaN.
    """
    draw = np.random.default_rng(0)
    width = OVERFLOW_WIDTH

    def weights(scale: float) -> Floats:
        return (scale * draw.standard_normal((width, width)) / width**0.5).astype(np.float32)

    shape = ("FLOAT", ["batch", width])
    return onnx_model(
        {"x": shape},
        {"y": shape},
        [
            ("MatMul", ["x", "narrow"], ["a"], {"name": "narrow_product"}),
            ("Relu", ["a"], ["b"], {"name": "positive"}),
            ("MatMul", ["b", "wide"], ["c"], {"name": "wide_product"}),
            # Moves data only, so that ONNX Runtime does it in FP16 on CPUs too.
            ("Reshape", ["c", "groups"], ["g"], {"name": "grouped"}),
            ("LayerNormalization", ["g", "scale", "bias"], ["n"], {"name": "norm"}),
            ("Reshape", ["n", "together"], ["d"], {"name": "joined"}),
            ("MatMul", ["d", "last"], ["y"], {"name": "last_product"}),
        ],
        {
            "narrow": weights(30),
            "wide": weights(30_000),
            "last": weights(1),
            "scale": np.ones(8, np.float32),
            "bias": np.zeros(8, np.float32),
            "groups": np.int64([-1, width // 8, 8]),
            "together": np.int64([-1, width]),
        },
    )


def overflow_input(rows: int, seed: int = 0) -> dict[str, Floats]:
    drawn = np.random.default_rng(seed).standard_normal((rows, OVERFLOW_WIDTH))
    return {"x": drawn.astype(np.float32)}


def written(content: bytes, path: Path) -> Path:
    path.write_bytes(content)
    return path


def answers(path: Path, inputs: dict[str, Any]) -> Any:
    """The first output of the file in ONNX Runtime on the CPU."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)[
        0
    ]


def small_convolutions(weight_type: str = "float32") -> bytes:
    """`image` float [batch, 3, 8, 8] to `scores` [batch, 4]: four layers with random weights.

    Weights of another type have a Cast behind them, as some packages store theirs.
    """
    draw = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 3, 3), "w4": (8, 4)}
    stored = {
        name: (draw.standard_normal(shape) / shape[1]).astype(weight_type)
        for name, shape in shapes.items()
    }
    nodes: list[Node] = []
    if weight_type != "float32":
        stored = {f"{name}_stored": array for name, array in stored.items()}
        nodes = [("Cast", [f"{name}_stored"], [name], {"to": 1}) for name in shapes]
    for index, source in ((1, "image"), (2, "b1"), (3, "b2")):
        more = {"name": f"conv{index}", "pads": [1, 1, 1, 1]}
        stored[f"bias{index}"] = draw.standard_normal(8).astype(np.float32) / 4
        nodes.append(("Conv", [source, f"w{index}", f"bias{index}"], [f"a{index}"], more))
        nodes.append(("Relu", [f"a{index}"], [f"b{index}"], {}))
    nodes.append(("GlobalAveragePool", ["b3"], ["mean"], {}))
    nodes.append(("Flatten", ["mean"], ["flat"], {}))
    nodes.append(("Gemm", ["flat", "w4"], ["scores"], {"name": "head"}))
    image, scores = ("FLOAT", ["batch", 3, 8, 8]), ("FLOAT", ["batch", 4])
    return onnx_model({"image": image}, {"scores": scores}, nodes, stored)


def small_products(width: int = 32, words: int = 100) -> bytes:
    """`ids` int64 [batch, seq] to `y` float [batch, seq, 8]: a table and three products."""
    draw = np.random.default_rng(0)
    shapes = {
        "table": (words, width),
        "w1": (width, width),
        "w2": (width, width),
        "w3": (width, 8),
    }
    weights = {
        name: draw.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()
    }
    return onnx_model(
        {"ids": ("INT64", ["batch", "seq"])},
        {"y": ("FLOAT", ["batch", "seq", 8])},
        [
            ("Gather", ["table", "ids"], ["x"], {"name": "look_up"}),
            ("MatMul", ["x", "w1"], ["a"], {"name": "first"}),
            ("Tanh", ["a"], ["b"], {}),
            ("MatMul", ["b", "w2"], ["c"], {"name": "second"}),
            ("Tanh", ["c"], ["d"], {}),
            ("MatMul", ["d", "w3"], ["y"], {"name": "third"}),
        ],
        weights,
    )


def separable_convolutions(channels: int = 16, side: int = 32) -> bytes:
    """`image` float [batch, channels, side, side] to `y` of that shape: 1 x 1 convolutions that mix
    channels, and 3 x 3 ones that keep them apart, in turn, with random weights.
    """
    draw = np.random.default_rng(0)
    nodes: list[Node] = []
    weights = {}
    for index in range(6):
        group, size = (channels, 3) if index % 2 else (1, 1)
        shape = (channels, channels // group, size, size)
        drawn = draw.standard_normal(shape) / np.sqrt(shape[1] * size * size)
        weights[f"w{index}"] = drawn.astype(np.float32)
        source = f"b{index}" if index else "image"
        more = {"pads": [size // 2] * 4, "group": group}
        nodes.append(("Conv", [source, f"w{index}"], [f"a{index}"], more))
        nodes.append(("Relu", [f"a{index}"], [f"b{index + 1}" if index < 5 else "y"], {}))
    image = ("FLOAT", ["batch", channels, side, side])
    return onnx_model({"image": image}, {"y": image}, nodes, weights)


def images(rows: int, seed: int = 0) -> dict[str, Floats]:
    drawn = np.random.default_rng(seed).standard_normal((rows, 3, 8, 8))
    return {"image": drawn.astype(np.float32)}


def ids(rows: int, length: int = 6, seed: int = 0) -> dict[str, npt.NDArray[np.int64]]:
    return {"ids": np.random.default_rng(seed).integers(0, 100, (rows, length))}
