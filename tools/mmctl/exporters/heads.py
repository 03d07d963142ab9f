"""What a task makes of a Hugging Face checkpoint: which class loads it, what goes in and out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mmctl.errors import InputError
from mmctl.exporters.samples import SEED, Example

HeadName = Literal[
    "sentence-embedding",
    "feature-extraction",
    "text-classification",
    "token-classification",
    "image-classification",
]
EXAMPLE_TOKENS = 16


def load_checkpoint(folder: Path, loader: str) -> Any:
    """The model in fp32, weights from safetensors only: other formats may run code."""
    import torch
    import transformers

    try:
        return getattr(transformers, loader).from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="eager",
            use_safetensors=True,
            local_files_only=True,
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"transformers cannot load {folder.name}: {error}") from error


@dataclass(frozen=True, slots=True)
class Head:
    """What a task makes of a checkpoint."""

    loader: str
    output: str
    module: Callable[[Any, Path], Any]
    example: Callable[[Any], Example]


def _text_example(config: Any) -> Example:
    """Two sentences of tokens, the second one padded."""
    random = np.random.default_rng(SEED)
    vocabulary = config.get_text_config().vocab_size
    ids = random.integers(0, vocabulary, (2, EXAMPLE_TOKENS), dtype=np.int64)
    mask = np.ones_like(ids)
    mask[1, EXAMPLE_TOKENS // 3 :] = 0
    arrays = {"input_ids": ids, "attention_mask": mask}
    return Example(arrays, {name: {1: "seq"} for name in arrays})


def _image_example(config: Any) -> Example:
    size = config.image_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    random = np.random.default_rng(SEED)
    pixels = random.standard_normal((2, config.num_channels, height, width))
    return Example({"pixel_values": pixels.astype(np.float32)}, {})


def _first_of_text(model: Any, _folder: Path) -> Any:
    """The first output of a model on tokens and mask: states of each token, or logits."""
    return _text_module(model, lambda states, _mask: states)


def _sentence_vector(model: Any, folder: Path) -> Any:
    """Token states -> one vector of length 1 a text, pooled as the checkpoint says."""
    import torch

    pool = POOLINGS[_pooling_of(folder)]
    return _text_module(
        model, lambda states, mask: torch.nn.functional.normalize(pool(states, mask), dim=-1)
    )


def _text_module(model: Any, finish: Callable[[Any, Any], Any]) -> Any:
    import torch

    class TextModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            states = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
            return finish(states, attention_mask)

    return TextModel()


def _first_of_image(model: Any, _folder: Path) -> Any:
    import torch

    class ImageModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixel_values: Any) -> Any:
            return self.model(pixel_values=pixel_values)[0]

    return ImageModel()


def _mean(states: Any, mask: Any) -> Any:
    """The mean over the tokens that are text."""
    weight = mask.unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


def _first_token(states: Any, _mask: Any) -> Any:
    return states[:, 0]


POOLINGS: dict[str, Callable[[Any, Any], Any]] = {
    "pooling_mode_mean_tokens": _mean,
    "pooling_mode_cls_token": _first_token,
}
"""By the word of sentence-transformers."""


def _pooling_of(folder: Path) -> str:
    """How sentence-transformers pools this checkpoint; mean when it does not say."""
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return "pooling_mode_mean_tokens"
    modes: list[str] = [
        key
        for key, value in json.loads(file.read_text()).items()
        if key.startswith("pooling_mode_") and value is True
    ]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise InputError(
            f"{file.relative_to(folder)}: pooling by {', '.join(modes) or 'nothing'} is not "
            f"supported; supported: {', '.join(POOLINGS)}",
            hint="write the model as a `torch` source",
        )
    return modes[0]


HEADS: dict[HeadName, Head] = {
    "sentence-embedding": Head("AutoModel", "embedding", _sentence_vector, _text_example),
    "feature-extraction": Head("AutoModel", "states", _first_of_text, _text_example),
    "text-classification": Head(
        "AutoModelForSequenceClassification", "logits", _first_of_text, _text_example
    ),
    "token-classification": Head(
        "AutoModelForTokenClassification", "logits", _first_of_text, _text_example
    ),
    "image-classification": Head(
        "AutoModelForImageClassification", "logits", _first_of_image, _image_example
    ),
}
