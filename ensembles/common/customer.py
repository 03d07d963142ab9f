"""Steps that both customer service pipelines use, so that they give the same answers."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from replies import compose_reply
from spans import find_spans

Texts = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float32]


def find_entities(
    text: Texts, logits: Floats, offsets: npt.NDArray[np.int32]
) -> dict[str, npt.NDArray[np.object_]]:
    """`entities` of each text as JSON: [{"type", "text", "start", "end"}, ...]."""
    rows = zip(text, logits, offsets, strict=True)
    found = [json.dumps(find_spans(*row), ensure_ascii=False) for row in rows]
    return {"entities": np.array(found, object)}


def write_reply(
    intent: Texts, confidence: Floats, entities: Texts, sentiment: Texts
) -> dict[str, npt.NDArray[np.object_]]:
    """`reply` to each message, from what the other nodes found in it."""
    rows = zip(intent, confidence.tolist(), entities, sentiment, strict=True)
    replies = [
        compose_reply(name, sure, json.loads(spans), mood) for name, sure, spans, mood in rows
    ]
    return {"reply": np.array(replies, object)}
