"""A linear scorer over eight cue counts; stands in for a model of yours."""

import torch

WEIGHTS = [2.2, 1.8, 1.6, 1.4, 0.9, 0.5, -1.2, -0.8]
BIAS = -1.5


class Urgency(torch.nn.Module):
    """cues [batch, 8] -> score [batch]: how urgent, 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([WEIGHTS]))
            self.linear.bias.copy_(torch.tensor([BIAS]))

    def forward(self, cues: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"score": torch.sigmoid(self.linear(cues)).squeeze(-1)}


def build() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The module, and example inputs with a batch of two."""
    return Urgency().eval(), {"cues": torch.rand(2, 8)}
