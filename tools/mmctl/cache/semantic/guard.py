"""What a vector does not see and an answer turns on: numbers, dates, negations, names.

Two sentences that differ in one of these are near to each other and seldom have the same answer.
The rules are for English; of other languages they see numbers and, with case, names.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NEGATIONS = _words(
    """
    not no never without cannot can't won't don't doesn't isn't aren't wasn't shouldn't didn't
    dont cant unable except neither nor none stop disable off un avoid exclude excluding before
    after minus less least fewer lower lowest min minimum decrease reduce cheapest worst close
    closed deny reject cancel illegal unsafe
    """
)
"""Words that turn a sentence round: two texts need an even or an odd number of them alike."""

DATES = _words(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april may
    june july august september october november december today tomorrow yesterday morning
    evening night noon midnight week month year quarter spring summer autumn winter annual
    annually monthly weekly daily hourly yearly
    """
)

OPPOSITES = _words(
    """
    above/below accept/decline accept/reject activate/deactivate add/delete add/remove
    add/subtract adult/child adults/children after/before agree/disagree all/none all/one
    all/some allow/ban allow/block allow/deny allow/forbid also/only always/never
    always/sometimes annual/monthly any/every approve/reject arrival/departure arrive/depart
    arrive/leave bad/good best/worst better/worse big/small biggest/smallest borrow/lend
    both/either bottom/top business/personal buy/sell call/text cheap/expensive cheapest/dearest
    close/open closed/open cold/hot connect/disconnect cool/heat credit/debit dangerous/safe
    day/night decrease/increase decrypt/encrypt delete/save deposit/withdraw disable/enable
    divide/multiply double/single down/up downgrade/upgrade download/upload downstairs/upstairs
    dry/wet earliest/latest early/late east/west empty/full end/start enter/exit entrance/exit
    every/some exclude/include export/import external/internal fail/pass fall/rise false/true
    far/near fast/slow faster/slower fewer/more find/lose finish/start fire/hire first/last
    forget/learn freeze/unfreeze from/to full/part full/partial gain/lose give/take half/whole
    hide/show high/low higher/lower highest/lowest illegal/legal in/out increase/reduce
    indoor/outdoor inside/outside install/uninstall join/leave large/small largest/smallest
    least/most left/right less/more lock/unlock long/short longer/shorter longest/shortest
    lose/win loss/profit lower/raise man/woman max/min maximum/minimum men/women men's/women's
    minus/plus monthly/yearly multiple/single mute/unmute narrow/wide negative/positive new/old
    newer/older newest/oldest north/south off/on old/young older/younger one/two open/shut
    over/under part/whole pause/resume pay/receive permanent/temporary private/public pull/push
    read/write receive/send return/single safe/unsafe save/spend sign-in/sign-out start/stop
    strong/weak subscribe/unsubscribe summer/winter weekday/weekend weekdays/weekends
    with/without
    """
)
"""Words that do not stand for each other: one text must not have the one where the other has the
other.
"""

_NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
)  # fmt: skip
NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS)}

_OPPOSED: dict[str, set[str]] = {}
for _pair in OPPOSITES:
    _one, _other = _pair.split("/")
    _OPPOSED.setdefault(_one, set()).add(_other)
    _OPPOSED.setdefault(_other, set()).add(_one)

_UNDOING = re.compile(r"(?:un|in|im|il|ir|dis|non)-?(?=\w{3})")
_TOKEN = re.compile(r"[\w']+(?:[.:/][0-9]+)*")
_NAME = re.compile(r"(?<!^)(?<![.?!] )\b[A-Z][A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a text must agree. Words are kept as numbers that mean nothing in another process."""

    numbers: tuple[str, ...]
    dates: frozenset[str]
    turns: bool
    sides: frozenset[str]
    words: frozenset[int]
    undone: frozenset[int]
    names: tuple[int, ...]


def facts_of(text: str) -> Facts:
    text = unicodedata.normalize("NFKC", text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    tokens = _TOKEN.findall(text.casefold())
    words = frozenset(tokens)
    numbers = [
        NUMBERS.get(token, token)
        for token in tokens
        if token in NUMBERS or any(letter.isdigit() for letter in token)
    ]
    names = dict.fromkeys(found.casefold() for found in _NAME.findall(text))
    undone = (word[len(found[0]) :] for word in words if (found := _UNDOING.match(word)))
    return Facts(
        tuple(sorted(numbers)),
        words & DATES,
        bool(len(words & NEGATIONS) % 2),
        words & _OPPOSED.keys(),
        frozenset(map(hash, words)),
        frozenset(map(hash, undone)),
        tuple(hash(name) for name in names if name != "i"),
    )


def agree(a: Facts, b: Facts) -> bool:
    """Whether nothing speaks against one answer for both."""
    return (
        a.numbers == b.numbers
        and a.dates == b.dates
        and a.turns == b.turns
        and not _opposed(a.sides - b.sides, b.sides - a.sides)
        and not (a.undone & (b.words - a.words) or b.undone & (a.words - b.words))
        and _names_agree(a, b)
    )


def _names_agree(a: Facts, b: Facts) -> bool:
    """Each may name what the other does not, but not both; what both name, in the same order."""
    ours, theirs = set(a.names), set(b.names)
    if ours - b.words and theirs - a.words:
        return False
    return [n for n in a.names if n in theirs] == [n for n in b.names if n in ours]


def _opposed(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether a word of one is the opposite of one of the other."""
    return any(not _OPPOSED[word].isdisjoint(b) for word in a)
