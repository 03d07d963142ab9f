"""find_spans: from tags of tokens to spans of text."""

import json
from typing import Any

import numpy as np
import pytest

CLS = SEP = PAD = (0, 0)


def logits_of(*tags: str) -> Any:
    import spans

    return np.eye(len(spans.TAGS), dtype=np.float32)[[spans.TAGS.index(tag) for tag in tags]]


def offsets_of(text: str, *tokens: str) -> Any:
    """Offsets of tokens that stand in `text` one after the other, and of [CLS], [SEP], [PAD]."""
    found, start = [CLS], 0
    for token in tokens:
        start = text.index(token, start)
        found.append((start, start + len(token)))
        start += len(token)
    return np.array([*found, SEP, PAD], np.int32)


@pytest.mark.parametrize(
    ("text", "tokens", "tags", "expected"),
    [
        pytest.param("no names here", "no names here", "O O O", [], id="nothing"),
        pytest.param(
            "paid 20 euros today",
            "paid 20 euros today",
            "O B-MONEY I-MONEY B-DATE",
            [("MONEY", "20 euros"), ("DATE", "today")],
            id="neighbours of two types",
        ),
        pytest.param(
            "Anna Bob", "Anna Bob", "B-PERSON B-PERSON", [("PERSON", "Anna"), ("PERSON", "Bob")],
            id="B begins a new span",
        ),
        pytest.param(
            "the 3 March", "the 3 March", "O I-DATE I-DATE", [("DATE", "3 March")],
            id="I without B begins one too",
        ),
        pytest.param(
            "at 5 Zara", "at 5 Zara", "O B-TIME I-COMPANY", [("TIME", "5"), ("COMPANY", "Zara")],
            id="I of another type does not continue",
        ),
        pytest.param(
            "to Netflix", "to Net flix", "O B-COMPANY O", [("COMPANY", "Netflix")],
            id="a word has the tag of its first piece",
        ),
        pytest.param(
            "to Netflix", "to Net flix", "O O B-COMPANY", [], id="and of no other piece"
        ),
        pytest.param(
            "costs $50", "costs $ 50", "O B-MONEY I-MONEY", [("MONEY", "$50")],
            id="a sign is a word of its own",
        ),
        pytest.param(
            "für Zoë 😀 am Montag", "für Zoë 😀 am Montag", "O B-PERSON O O B-DATE",
            [("PERSON", "Zoë"), ("DATE", "Montag")],
            id="offsets count characters, not bytes",
        ),
    ],
)  # fmt: skip
def test_spans(text: str, tokens: str, tags: str, expected: list[tuple[str, str]]) -> None:
    import spans

    # what the tagger says about special tokens and padding does not matter
    logits = logits_of("B-DATE", *tags.split(), "I-DATE", "B-MONEY")
    found = spans.find_spans(text, logits, offsets_of(text, *tokens.split()))
    assert [(span["type"], span["text"]) for span in found] == expected
    assert all(text[span["start"] : span["end"]] == span["text"] for span in found)


def test_the_step_answers_json_for_every_row() -> None:
    import customer

    text = np.array(["am Montag", "nichts"], object)
    logits = np.stack([logits_of("O", "O", "B-DATE", "O"), logits_of("O", "O", "O", "O")])
    offsets = np.array([[CLS, (0, 2), (3, 9), SEP], [CLS, (0, 6), SEP, PAD]], np.int32)
    answer = customer.find_entities(text, logits, offsets)["entities"]
    assert [json.loads(row) for row in answer] == [
        [{"type": "DATE", "text": "Montag", "start": 3, "end": 9}],
        [],
    ]
