"""compose_reply: what the customer reads."""

from pathlib import Path

import pytest

SURE, UNSURE = 0.9, 0.3
MONEY = {"type": "MONEY", "text": "20 euros", "start": 0, "end": 8}
DATE = {"type": "DATE", "text": "Monday", "start": 10, "end": 16}
COUNT = {"type": "COUNT", "text": "two", "start": 20, "end": 23}


def reply(
    intent: str, confidence: float = SURE, sentiment: str = "neutral", *entities: object
) -> str:
    from replies import compose_reply

    answer: str = compose_reply(intent, confidence, entities, sentiment)
    return answer


def test_an_intent_has_its_own_answer() -> None:
    from answers import ANSWERS

    assert reply("change_pin") == ANSWERS["change_pin"]


def test_other_intents_are_named_in_words() -> None:
    assert reply("reverted_card_payment?").startswith(
        "You are asking about: reverted card payment."
    )


def test_below_the_threshold_a_colleague_takes_over() -> None:
    assert reply("change_pin", UNSURE).endswith("A colleague will take over.")
    assert reply("change_pin", 0.5) == reply("change_pin", SURE)


@pytest.mark.parametrize(
    ("sentiment", "opening"),
    [("negative", "I am sorry for the trouble. "), ("positive", "Thank you for your kind words. ")],
)
def test_the_mood_opens_the_answer(sentiment: str, opening: str) -> None:
    assert reply("change_pin", SURE, sentiment) == opening + reply("change_pin")


def test_a_mood_of_a_message_that_is_not_understood_is_not_answered() -> None:
    assert reply("change_pin", UNSURE, "positive") == reply("change_pin", UNSURE)


@pytest.mark.parametrize(
    ("entities", "note"),
    [
        pytest.param([MONEY], "I have noted: 20 euros.", id="one"),
        pytest.param([MONEY, DATE], "I have noted: 20 euros and Monday.", id="two"),
        pytest.param([MONEY, DATE, MONEY], "I have noted: 20 euros and Monday.", id="repeated"),
        pytest.param([COUNT, DATE], "I have noted: Monday.", id="counts are not repeated"),
    ],
)
def test_what_was_named_is_repeated(entities: list[object], note: str) -> None:
    assert reply("change_pin", SURE, "neutral", *entities).endswith(f" {note}")


def test_every_answer_is_for_an_intent_that_the_model_knows(root: Path) -> None:
    from answers import ANSWERS

    known = (root / "ensembles/intent/assets/intents.txt").read_text("utf-8").splitlines()
    assert set(ANSWERS) <= set(known)
