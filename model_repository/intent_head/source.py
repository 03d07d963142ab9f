"""Which of 77 banking intents the text of a MiniLM embedding has: a linear head."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


class IntentHead(nn.Module):
    """[batch, 384] embeddings to [batch, 77] probabilities, in the order of BANKING77's names."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        self.linear.load_state_dict({"weight": weight, "bias": bias})

    def forward(self, embedding: Tensor) -> Tensor:
        return torch.softmax(self.linear(embedding), dim=-1)


def build() -> tuple[nn.Module, dict[str, Tensor]]:
    """The module and example inputs: vectors of length 1, as MiniLM gives them."""
    with np.load(Path(__file__).parent / "head.npz", allow_pickle=False) as head:
        tensors = {name: torch.from_numpy(head[name]) for name in ("weight", "bias")}
    embedding = nn.functional.normalize(torch.randn(2, 384), dim=-1)
    return IntentHead(**tensors).eval(), {"embedding": embedding}
