"""Steps of customer_service_chain: what one stage hands to the next, and the reply."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from customer import write_reply

Texts = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float32]


def note_intent(text: Texts, intent: Texts, confidence: Floats) -> dict[str, Texts]:
    notes = zip(intent, confidence.tolist(), strict=True)
    states = [json.dumps({"intent": name, "confidence": sure}) for name, sure in notes]
    return {"text": text, "state": np.array(states, object)}


def note_entities(text: Texts, state: Texts, entities: Texts) -> dict[str, Texts]:
    return {"text": text, "state": _noted(state, "entities", entities)}


def note_sentiment(state: Texts, sentiment: Texts) -> dict[str, Texts]:
    return {"state": _noted(state, "sentiment", sentiment)}


def answer(state: Texts) -> dict[str, npt.NDArray[np.generic]]:
    """All that the stages found, and the reply."""
    rows = [json.loads(row) for row in state]
    intent, entities, sentiment = (
        np.array([row[name] for row in rows], object)
        for name in ("intent", "entities", "sentiment")
    )
    confidence = np.array([row["confidence"] for row in rows], np.float32)
    return {
        "intent": intent,
        "confidence": confidence,
        "entities": entities,
        "sentiment": sentiment,
        "reply": write_reply(intent, confidence, entities, sentiment)["reply"],
    }


def _noted(state: Texts, key: str, values: Texts) -> Texts:
    rows = zip(state, values, strict=True)
    return np.array([json.dumps({**json.loads(row), key: value}) for row, value in rows], object)
