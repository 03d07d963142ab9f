"""judge: what becomes of a post, given what the branches found."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

ENGLISH, CHINESE = "A text in English", "一段中文"
NOT_JUDGED = "tone not judged (script is not Latin)"


@pytest.mark.parametrize(
    ("text", "toxicity", "nsfw", "hits", "label", "reasons"),
    [
        pytest.param(ENGLISH, 0.01, 0.01, 0, "allow", "", id="nothing found"),
        pytest.param(ENGLISH, 0.79, 0.19, 0, "allow", "", id="just below every threshold"),
        pytest.param(ENGLISH, 0.8, 0.0, 0, "review", "toxic text (0.80)", id="rather toxic"),
        pytest.param(ENGLISH, 0.96, 0.0, 0, "block", "toxic text (0.96)", id="very toxic"),
        pytest.param(ENGLISH, 0.1, 0.0, 1, "review", "listed words (w)", id="a word alone"),
        pytest.param(ENGLISH, 0.5, 0.0, 1, "block", "listed words (w)", id="a word in a bad tone"),
        pytest.param(ENGLISH, 0.1, 0.0, 2, "block", "listed words (w)", id="two words"),
        pytest.param(
            ENGLISH, 0.0, 0.2, 0, "review", "photo not safe for work (0.20)", id="doubtful photo"
        ),
        pytest.param(
            ENGLISH, 0.0, 0.8, 0, "block", "photo not safe for work (0.80)", id="unsafe photo"
        ),
        pytest.param(
            ENGLISH,
            0.96,
            0.5,
            1,
            "block",
            "toxic text (0.96); listed words (w); photo not safe for work (0.50)",
            id="every reason is given",
        ),
        pytest.param(CHINESE, 0.99, 0.0, 0, "allow", NOT_JUDGED, id="a score of Chinese is noise"),
        pytest.param(
            CHINESE, 0.99, 0.0, 1, "review", f"listed words (w); {NOT_JUDGED}", id="its words count"
        ),
        pytest.param("12:30", 0.96, 0.0, 0, "block", "toxic text (0.96)", id="no letters at all"),
        pytest.param(ENGLISH, -1.0, 0.0, 0, "review", "tone not judged (no answer)", id="no tone"),
        pytest.param(
            ENGLISH, 0.0, -1.0, 0, "review", "photo not judged (no answer)", id="no photo"
        ),
        pytest.param(
            ENGLISH,
            0.96,
            -1.0,
            0,
            "block",
            "toxic text (0.96); photo not judged (no answer)",
            id="what is known suffices to block",
        ),
        pytest.param(CHINESE, -1.0, 0.0, 0, "allow", NOT_JUDGED, id="a tone that nobody needs"),
    ],
)
def test_verdict(
    steps_of: Callable[[str], ModuleType],
    *,
    text: str,
    toxicity: float,
    nsfw: float,
    hits: int,
    label: str,
    reasons: str,
) -> None:
    answer = steps_of("content_moderation").judge(
        text=np.array([text], object),
        toxicity=np.array([toxicity], np.float32),
        nsfw=np.array([[1 - nsfw, nsfw]], np.float32),
        hits=np.array([hits], np.int32),
        found=np.array(["w" if hits else ""], object),
    )
    assert answer["label"].tolist() == [label]
    assert answer["reasons"].tolist() == [reasons]


@pytest.mark.parametrize(
    ("text", "latin"),
    [
        pytest.param("hello", True, id="English"),
        pytest.param("où êtes-vous", True, id="accents are Latin"),
        pytest.param("привет", False, id="Cyrillic is not"),
        pytest.param("hello 你好", True, id="mostly Latin letters"),
        pytest.param("ok 今天天气很好", False, id="mostly Chinese letters"),
        pytest.param("", True, id="no letters"),
    ],
)
def test_script_of_a_text(steps_of: Callable[[str], ModuleType], text: str, latin: bool) -> None:
    assert steps_of("content_moderation").mostly_latin(text) is latin
