"""Steps are plain functions on stacked arrays: one row a request, strings as objects of str."""

import numpy as np

CUES = (
    ("down", "outage"),
    ("urgent", "asap", "now"),
    ("broken", "error", "fails"),
    ("help",),
    ("refund", "money"),
    ("!",),
    ("thanks", "thank you"),
    ("question", "wondering"),
)


def count_cues(text: np.ndarray) -> dict[str, np.ndarray]:
    """text [batch] -> cues [batch, 8]: how often each group of cue words stands in it."""
    rows = [[sum(t.lower().count(word) for word in group) for group in CUES] for t in text]
    return {"cues": np.array(rows, dtype=np.float32)}


def choose_queue(score: np.ndarray) -> dict[str, np.ndarray]:
    """score [batch] -> queue [batch]."""
    names = ["urgent" if s > 0.7 else "normal" if s > 0.3 else "low" for s in score]
    return {"queue": np.array(names, dtype=object)}
