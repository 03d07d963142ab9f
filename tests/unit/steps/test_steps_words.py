"""find_words: which words of a text are on the lists."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

Find = Callable[[str], tuple[int, str]]


@pytest.fixture(scope="module")
def find(steps_of: Callable[[str], ModuleType]) -> Find:
    find_words: Any = steps_of("content_moderation").find_words

    def find_one(text: str) -> tuple[int, str]:
        answer = find_words(np.array([text], object))
        return int(answer["hits"][0]), answer["found"][0]

    return find_one


@pytest.mark.parametrize(
    ("text", "hits", "found"),
    [
        pytest.param("", 0, "", id="nothing in an empty text"),
        pytest.param("good morning", 0, "", id="nothing in a clean text"),
        pytest.param("this sucks!", 1, "sucks", id="a word"),
        pytest.param("This SUCKS", 1, "sucks", id="capitals do not hide a word"),
        pytest.param("this \uff53\uff55\uff43\uff4b\uff53", 1, "sucks", id="nor do wide letters"),
        pytest.param("this su\u200bck\u00ads", 1, "sucks", id="nor do invisible characters"),
        pytest.param("a button", 0, "", id="a word inside another is no hit"),
        pytest.param("sucks你", 1, "sucks", id="a Chinese character ends a Latin word"),
        pytest.param("buttré", 0, "", id="a letter with an accent does not"),
        pytest.param(
            "it sucks, it sucks", 2, "sucks", id="each hit counts, each word is named once"
        ),
        pytest.param("butt sucks", 2, "butt,sucks", id="words stand in order of appearance"),
        pytest.param("a piece of shit", 1, "piece of shit", id="the longest of several wins"),
        pytest.param("\U0001f595\ufe0f", 1, "\U0001f595", id="a sign with a variation selector"),
    ],
)
def test_latin_words_are_found_whole(find: Find, text: str, hits: int, found: str) -> None:
    assert find(text) == (hits, found)


@pytest.mark.parametrize(
    ("text", "hits", "found"),
    [
        pytest.param("你是个白痴吧", 1, "白痴", id="a word in the middle of a sentence"),
        pytest.param("白\u200b痴", 1, "白痴", id="invisible characters do not hide it"),
        pytest.param("喝牛奶", 0, "", id="an everyday character of the list is innocent"),
        pytest.param("女性的性格", 0, "", id="also twice in a text"),
        pytest.param("他妈妈来了", 0, "", id="an innocent phrase hides the word in it"),
        pytest.param("他妈的", 1, "他妈的", id="which is a hit elsewhere"),
        pytest.param("路口交通拥堵", 0, "", id="a phrase that begins before the word"),
        pytest.param("13.5 寸", 0, "", id="a number is no word"),
    ],
)
def test_chinese_words_are_found_anywhere_but_in_innocent_phrases(
    find: Find, text: str, hits: int, found: str
) -> None:
    assert find(text) == (hits, found)


def test_each_row_of_a_batch_has_its_own_answer(
    steps_of: Callable[[str], ModuleType],
) -> None:
    texts = np.array(["fine", "this sucks", "白痴"], object)
    answer = steps_of("content_moderation").find_words(texts)
    assert answer["hits"].tolist() == [0, 1, 1]
    assert answer["hits"].dtype == np.int32
    assert answer["found"].tolist() == ["", "sucks", "白痴"]


def test_an_expression_of_no_words_finds_nothing() -> None:
    import wordlist

    assert wordlist.expression([]).search("anything") is None


def test_an_expression_takes_words_that_look_like_patterns() -> None:
    import wordlist

    assert wordlist.expression(["s&m", "a.c"]).findall("abc s&m a.c") == ["s&m", "a.c"]
