"""How an answer lies in a store: it comes back whole, or not at all."""

from __future__ import annotations

import hashlib
import random
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mmctl.cache import envelope
from mmctl.cache.envelope import Entry, kept, seal, unseal
from mmctl.inference import InferResponse
from mmctl.tensors import Array

msgpack = pytest.importorskip("msgpack")

ECHO = b"k" * 32
SECRET = b"secret"


def texts(*items: Any) -> Array:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def an_entry(**outputs: Array) -> Entry:
    outputs = outputs or {
        "y": np.arange(6, dtype="f4").reshape(2, 3),
        "t": texts(b"a", b"", b"\xff"),
    }
    return kept(
        InferResponse(outputs, "m", "3"),
        created=1000.25,
        ttl_s=60.0,
        stale_s=5.0,
        digest="d1",
        epoch="1.2",
    )


def same(one: Entry, other: Entry) -> bool:
    plain = [replace(entry, outputs={}, vector=None) for entry in (one, other)]
    fields = [
        [getattr(e, name) for name in e.__slots__ if name not in ("outputs", "vector")]
        for e in plain
    ]
    return (
        fields[0] == fields[1]
        and list(one.outputs) == list(other.outputs)
        and all(
            a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
            for a, b in zip(one.outputs.values(), other.outputs.values(), strict=True)
        )
    )


@pytest.mark.parametrize("secret", [None, SECRET])
def test_an_entry_comes_back_as_it_went(secret: bytes | None) -> None:
    entry = an_entry()
    back = unseal(seal(entry, ECHO, secret), ECHO, secret)
    assert back is not None
    assert same(back, entry)


@given(
    st.dictionaries(
        st.text(max_size=5),
        arrays(
            st.sampled_from(["f2", "f4", "f8", "i1", "u8", "?"]),
            array_shapes(min_dims=0, min_side=0, max_dims=3),
            elements={"allow_nan": False},
        ),
        min_size=1,
        max_size=3,
    )
)
def test_all_tensors_come_back(outputs: dict[str, Array]) -> None:
    entry = an_entry(**{}) if not outputs else kept(InferResponse(outputs), created=0.0, ttl_s=1.0)
    back = unseal(seal(entry, ECHO), ECHO)
    assert back is not None
    assert same(back, entry)


def test_a_vector_travels_with_the_answer() -> None:
    vector = np.array([0.6, 0.8], "f4")
    back = unseal(seal(replace(an_entry(), vector=vector), ECHO), ECHO)
    assert back is not None
    assert back.vector is not None
    assert back.vector.tolist() == vector.tolist()


def test_large_tensors_are_packed_where_that_saves() -> None:
    zeros = np.zeros(100_000, "f4")
    noise = np.random.default_rng(0).random(100_000, dtype="f4")
    raw = seal(an_entry(zeros=zeros, noise=noise), ECHO)
    assert noise.nbytes < len(raw) < noise.nbytes + 10_000
    back = unseal(raw, ECHO)
    assert back is not None
    assert back.outputs["zeros"].tolist() == zeros.tolist()
    assert back.outputs["noise"].tolist() == noise.tolist()


# --- nobody writes to what is kept


def test_later_changes_of_an_answer_do_not_reach_what_is_kept() -> None:
    mine = {"y": np.zeros(3, "f4"), "t": texts("a", "b")}
    entry = kept(InferResponse(mine), created=0.0, ttl_s=1.0)
    mine["y"][:] = 7
    mine["t"][:] = "changed"
    assert entry.outputs["y"].tolist() == [0, 0, 0]
    assert entry.outputs["t"].tolist() == ["a", "b"]


@pytest.mark.parametrize("read", [False, True], ids=["kept", "read back"])
@pytest.mark.parametrize("name", ["y", "t"])
def test_what_is_kept_cannot_be_written_to(name: str, read: bool) -> None:
    entry: Entry | None = an_entry()
    if read:
        entry = unseal(seal(an_entry(), ECHO), ECHO)
    assert entry is not None
    array = entry.response().outputs[name]
    with pytest.raises(ValueError, match="read-only"):
        array[:] = array
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_each_answer_has_its_own_table_of_outputs() -> None:
    entry = an_entry()
    entry.response().outputs.clear()  # type: ignore[attr-defined]
    assert list(entry.response().outputs) == ["y", "t"]


# --- age


@pytest.mark.parametrize(
    ("after_s", "fresh", "alive"),
    [
        pytest.param(0.0, True, True, id="new"),
        pytest.param(59.9, True, True, id="just before"),
        pytest.param(60.0, False, True, id="old"),
        pytest.param(65.0, False, False, id="older than it may be"),
        pytest.param(-1.0, True, True, id="a clock that is a little off"),
        pytest.param(-3600.0, False, False, id="from the future"),
        pytest.param(float("nan"), False, False, id="no time at all"),
    ],
)
def test_an_entry_lives_as_long_as_it_says(after_s: float, fresh: bool, alive: bool) -> None:
    entry = an_entry()
    now = entry.created + after_s
    assert (entry.is_fresh(now), entry.is_alive(now)) == (fresh, alive)


# --- damage and forgery


def reason_of(raw: bytes, echo: bytes = ECHO, secret: bytes | None = None) -> str:
    reasons: list[str] = []
    assert unseal(raw, echo, secret, on_bad=reasons.append) is None
    assert len(reasons) == 1
    return reasons[0]


def test_an_answer_under_another_key_is_none() -> None:
    assert reason_of(seal(an_entry(), ECHO), b"o" * 32) == "echo"


def test_without_the_secret_nothing_is_sealed() -> None:
    assert reason_of(seal(an_entry(), ECHO), secret=SECRET) == "seal"
    assert reason_of(seal(an_entry(), ECHO, b"other"), secret=SECRET) == "seal"
    assert reason_of(seal(an_entry(), ECHO, SECRET)) == "seal"


@pytest.mark.parametrize("secret", [None, SECRET])
def test_ten_thousand_mutations_are_misses(secret: bytes | None) -> None:
    """5,000 without a secret, 5,000 with one."""
    random_ = random.Random(7)
    raw = seal(an_entry(), ECHO, secret)
    other = seal(an_entry(y=np.ones(5)), b"o" * 32, secret)
    reasons: list[str] = []
    for number in range(5000):
        mutated = MUTATIONS[number % len(MUTATIONS)](raw, other, random_)
        assert mutated == raw or unseal(mutated, ECHO, secret, on_bad=reasons.append) is None
    assert len(reasons) > 4900
    assert set(reasons) == {"size", "seal", "echo"}


def cuts(raw: bytes, random_: random.Random) -> list[int]:
    return sorted(random_.randrange(len(raw) + 1) for _ in range(2))


def flip_a_bit(raw: bytes, other: bytes, random_: random.Random) -> bytes:
    at = random_.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << random_.randrange(8)]) + raw[at + 1 :]


def insert(raw: bytes, other: bytes, random_: random.Random) -> bytes:
    at, _ = cuts(raw, random_)
    return raw[:at] + random_.randbytes(random_.randrange(1, 9)) + raw[at:]


def leave_out(raw: bytes, other: bytes, random_: random.Random) -> bytes:
    at, to = cuts(raw, random_)
    return raw[:at] + raw[to:]


def say_twice(raw: bytes, other: bytes, random_: random.Random) -> bytes:
    at, to = cuts(raw, random_)
    return raw[:to] + raw[at:]


def join_two(raw: bytes, other: bytes, random_: random.Random) -> bytes:
    at, _ = cuts(raw, random_)
    return raw[:at] + other[at:]


MUTATIONS = (
    flip_a_bit,
    insert,
    leave_out,
    say_twice,
    join_two,
    lambda raw, other, random_: raw[: random_.randrange(len(raw))],
    lambda raw, other, random_: random_.randbytes(len(raw)),
    lambda raw, other, random_: other,
)


def test_what_is_sealed_and_not_ours_is_read_without_an_exception() -> None:
    """Whoever can write to a store without a secret can seal anything."""
    random_ = random.Random(8)
    for _ in range(5000):
        entry = unseal(resealed(header_like(random_), random_.randbytes(24)), ECHO)
        assert entry is None or all(array.nbytes <= 48 for array in entry.outputs.values())


def header_like(random_: random.Random) -> Any:
    odd = [None, True, -1, 2**40, 1.5, float("nan"), "x", b"y", [], {}, [1], ["y"], ECHO]
    good: dict[str, Any] = {
        "echo": ECHO,
        "model": "m",
        "version": "1",
        "created": 1.0,
        "ttl_s": 1.0,
        "stale_s": 0.0,
        "digest": "",
        "epoch": "",
        "vector": b"",
        "outputs": [["y", "FP32", [2, 3], 24, 24]],
    }
    for name in random_.sample(sorted(good), random_.randrange(1, 3)):
        good[name] = random_.choice(odd)
    if isinstance(good["outputs"], list) and random_.random() < 0.7:
        row: list[Any] = ["y", "FP32", [2, 3], 24, 24]
        row[random_.randrange(5)] = random_.choice([*odd, "BYTES", "BF16", "FP16", [-6, -1], [24]])
        good["outputs"] = [row] * random_.randrange(1, 3)
    return random_.choice(odd) if random_.random() < 0.05 else good


def resealed(header: Any, body: bytes) -> bytes:
    packed = msgpack.packb(header)
    raw = envelope.MAGIC + struct.pack("<I", len(packed)) + packed + body
    return raw + hashlib.sha256(raw).digest()


def test_a_small_envelope_does_not_unpack_to_a_large_one() -> None:
    bomb = zlib.compress(b"\0" * 50_000_000, 9)
    rows = [["y", "UINT8", [100], len(bomb), 100], ["y", "UINT8", [2**40], len(bomb), 2**40]]
    for row in rows:
        header = {**header_like(random.Random(0)), "echo": ECHO, "outputs": [row]}
        assert reason_of(resealed(header, bomb)) == "form"


def test_python_objects_are_not_read() -> None:
    for odd in (msgpack.ExtType(1, b"x"), msgpack.Timestamp(1)):
        assert reason_of(resealed({"echo": odd}, b"")) == "form"


@pytest.mark.parametrize("raw", [b"", b"MMC1", b"\0" * 200, b"x" * 39])
def test_other_values_of_a_store_are_misses(raw: bytes) -> None:
    assert reason_of(raw) in ("size", "seal")


def test_prompts_are_not_in_an_envelope() -> None:
    """Of what was asked there is the key alone."""
    assert b"my secret prompt" not in seal(an_entry(), ECHO)
