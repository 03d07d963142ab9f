"""Steps of content_moderation: listed words, and the verdict over all branches."""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import numpy.typing as npt

import wordlist

Array = npt.NDArray[np.generic]
Texts = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float32]

ASSETS = Path(__file__).parent / "assets"

# Toxicity, measured on 2400 tweets, half of them toxic, and on 6330 harmless requests to
# assistants and banks. From BLOCK on 98.7 % of the tweets are toxic (63.9 % of all toxic ones
# found) and 1 harmless request is hit; from REVIEW on 97.8 % (78.6 %) and 23 are hit. With the
# words below: block 97.9 % (78.7 %) and 2 hit, block or review 94.9 % (88.0 %) and 27 hit.
TOXIC_BLOCK, TOXIC_REVIEW = 0.95, 0.8
# A listed word and a score on this side of the middle agree; two listed words need no score.
TOXIC_WITH_WORD = 0.5
# As the authors of Open-NSFW advise: below 0.2 safe, above 0.8 not.
NSFW_BLOCK, NSFW_REVIEW = 0.8, 0.2
# What `on_error` in pipeline.yaml gives for a model that failed or was late.
NO_ANSWER = -1.0


def find_words(text: Texts) -> dict[str, Array]:
    """How many listed words a text has, and which, joined by commas in order of appearance."""
    pattern, innocent = _listed()
    hits = [
        [word for word in pattern.findall(wordlist.plain(row)) if word not in innocent]
        for row in text
    ]
    return {
        "hits": np.array([len(row) for row in hits], np.int32),
        "found": np.array([",".join(dict.fromkeys(row)) for row in hits], object),
    }


@functools.cache
def _listed() -> tuple[re.Pattern[str], frozenset[str]]:
    """Finds listed words and innocent ones alike, and says which are innocent."""
    listed = [
        word
        for language in ("en", "zh")
        for word in json.loads((ASSETS / f"naughty_words_{language}.json").read_text("utf-8"))
    ]
    lines = (ASSETS / "innocent_zh.txt").read_text("utf-8").splitlines()
    innocent = frozenset(line for line in lines if not line.startswith("#"))
    return wordlist.expression([*listed, *innocent]), innocent


def judge(
    text: Texts,
    toxicity: Floats,
    nsfw: Floats,
    hits: npt.NDArray[np.int32],
    found: Texts,
) -> dict[str, Array]:
    """`label` allow, review or block, and the `reasons` for it, joined by `; `.

    `toxicity` and `hits` have one value per row, `nsfw` is [batch, 2]: safe, not safe. A score
    of NO_ANSWER is that of a model that failed: then nothing is allowed unseen.
    """
    scores = toxicity.tolist(), nsfw[:, 1].tolist()
    rows = zip(text, *scores, hits.tolist(), found, strict=True)
    verdicts = [_verdict(*row) for row in rows]
    return {
        "label": np.array([label for label, _ in verdicts], object),
        "reasons": np.array([reasons for _, reasons in verdicts], object),
    }


def _verdict(text: str, toxicity: float, nsfw: float, hits: int, found: str) -> tuple[str, str]:
    reasons = []
    judged = mostly_latin(text)
    silent = ["tone"] if judged and toxicity == NO_ANSWER else []
    silent += ["photo"] if nsfw == NO_ANSWER else []
    toxicity = toxicity if judged else 0.0
    if toxicity >= TOXIC_REVIEW:
        reasons.append(f"toxic text ({toxicity:.2f})")
    if hits:
        reasons.append(f"listed words ({found})")
    if nsfw >= NSFW_REVIEW:
        reasons.append(f"photo not safe for work ({nsfw:.2f})")
    reasons += [f"{part} not judged (no answer)" for part in silent]
    if not judged:
        reasons.append("tone not judged (script is not Latin)")
    block = (
        toxicity >= TOXIC_BLOCK
        or (hits and toxicity >= TOXIC_WITH_WORD)
        or hits >= 2
        or nsfw >= NSFW_BLOCK
    )
    review = toxicity >= TOXIC_REVIEW or hits or nsfw >= NSFW_REVIEW or silent
    return "block" if block else "review" if review else "allow", "; ".join(reasons)


def mostly_latin(text: str) -> bool:
    """Whether at least half of the letters are Latin; true for a text without letters."""
    letters = [letter for letter in text if letter.isalpha()]
    latin = sum(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)
    return 2 * latin >= len(letters)
