"""What makes two requests the same, and all that must not."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mmctl.cache.keys import (
    Identity,
    bypass_reason,
    exact_key,
    normalised,
    normalised_key,
    partition_key,
    tenant_token,
)
from mmctl.inference import InferRequest
from mmctl.tensors import Array

M = Identity("m", "1", "d1")
NUMBERS = arrays(
    st.sampled_from(["f2", "f4", "f8", "i1", "u2", "i4", "i8", "?"]), array_shapes(max_dims=3)
)


def texts(*items: Any, shape: tuple[int, ...] | None = None) -> Array:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape or (len(items),))


def asking(inputs: dict[str, Array] | None = None, **more: Any) -> InferRequest:
    return InferRequest("m", inputs or {"x": np.array([1.0], "f4")}, **more)


def key(
    inputs: dict[str, Array] | None = None,
    *,
    tenant: str = "t",
    identity: Identity = M,
    epoch: str | int = 0,
    **more: Any,
) -> bytes:
    return exact_key(tenant, identity, asking(inputs, **more), epoch)


ROW = np.array([[1, 2, 3, 4]], "f4")

PAIRS = [
    pytest.param(key({"x": ROW}), key({"x": ROW.reshape(2, 2)}), id="shape"),
    pytest.param(key({"x": ROW}), key({"x": ROW.view("i4")}), id="dtype, same bytes"),
    pytest.param(key({"x": ROW}), key({"x": ROW[0]}), id="batch axis"),
    pytest.param(key({"x": ROW}), key({"x": np.repeat(ROW, 2, 0)}), id="number of rows"),
    pytest.param(
        key({"ab": ROW, "c": ROW}), key({"a": ROW, "bc": ROW}), id="boundary of two names"
    ),
    pytest.param(
        key({"x": texts("ab", "c")}), key({"x": texts("a", "bc")}), id="boundary of two texts"
    ),
    pytest.param(
        key({"x": texts(b"a\x01\x00\x00\x00b")}), key({"x": texts("a", "b")}), id="length in a text"
    ),
    pytest.param(key({"x": texts("a", "")}), key({"x": texts("", "a")}), id="where the empty is"),
    pytest.param(
        key({"x": ROW, "y": -ROW}), key({"x": -ROW, "y": ROW}), id="which input has which value"
    ),
    pytest.param(key(parameters={"p": 2}), key(parameters={"p": 3}), id="a parameter's value"),
    pytest.param(key(parameters={"p": 1}), key(parameters={"p": "1"}), id="1 and the text 1"),
    pytest.param(key(parameters={"p": 1}), key(parameters={"p": True}), id="1 and true"),
    pytest.param(
        key(parameters={"p": True}), key(parameters={"p": "True"}), id="true and the text"
    ),
    pytest.param(key(parameters={"p": 1}), key(), id="a parameter or none"),
    pytest.param(key(outputs=("a",)), key(outputs=("b",)), id="requested outputs"),
    pytest.param(key(outputs=("a",)), key(outputs=("a", "b")), id="one output more"),
    pytest.param(key(outputs=("ab",)), key(outputs=("a", "b")), id="boundary of two outputs"),
    pytest.param(key(outputs=("a",)), key(), id="one output and all"),
    pytest.param(key(outputs=("p",)), key(parameters={"p": ""}), id="an output or a parameter"),
    pytest.param(key(), key(identity=replace(M, version="2")), id="version"),
    pytest.param(key(), key(identity=replace(M, digest="d2")), id="reloaded with other content"),
    pytest.param(key(), key(identity=replace(M, platform="tensorrt fp16")), id="precision"),
    pytest.param(key(), key(identity=replace(M, model="n")), id="model"),
    pytest.param(
        key(identity=Identity("m1", "1")), key(identity=Identity("m", "11")), id="model or version"
    ),
    pytest.param(key(), key(tenant="u"), id="tenant"),
    pytest.param(
        key(tenant="hi", identity=Identity("user", "1")),
        key(tenant="hiuser", identity=Identity("", "1")),
        id="tenant or model",
    ),
    pytest.param(key(), key(epoch=1), id="epoch"),
    pytest.param(key(headers={"x-locale": "de"}), key(headers={"x-locale": "fr"}), id="a header"),
    pytest.param(
        key({"x": np.array([0.0])}), key({"x": np.array([-0.0])}), id="0.0 and -0.0 are bytes"
    ),
    pytest.param(
        key({"x": np.array([0x7FF8000000000000], "u8").view("f8")}),
        key({"x": np.array([0x7FF8000000000001], "u8").view("f8")}),
        id="two kinds of NaN are bytes",
    ),
    pytest.param(key({"x": np.array([], "f4")}), key({"x": np.array([], "f8")}), id="no elements"),
    pytest.param(
        key({"x": np.zeros((0, 3), "f4")}), key({"x": np.zeros((3, 0), "f4")}), id="which axis is 0"
    ),
    pytest.param(
        key({"x": np.zeros(9000, "f4")}),
        key({"x": np.zeros((90, 100), "f4")}),
        id="shape of a large tensor",
    ),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_what_can_change_an_answer_changes_the_key(one: bytes, other: bytes) -> None:
    assert one != other


def test_the_digest_covers_what_an_ensemble_calls() -> None:
    """Its own version may stay while a callee's moves; the build key has the callees' keys."""
    assert key(identity=Identity("e", "1", "key of a1 b1")) != key(
        identity=Identity("e", "1", "key of a1 b2")
    )


SAME = [
    pytest.param(
        key({"x": texts("é")}), key({"x": texts("é".encode())}), id="a text and its UTF-8"
    ),
    pytest.param(key(request_id="1"), key(request_id="2"), id="the request's id"),
    pytest.param(key(parameters={"timeout": 5}), key(), id="timeout"),
    pytest.param(key(parameters={"priority": 1}), key(parameters={"priority": 2}), id="priority"),
    pytest.param(key(headers={"traceparent": "00-1"}), key(), id="a trace"),
    pytest.param(key(headers={"X-A": "1"}), key(headers={"x-a": "1"}), id="case of a header"),
    pytest.param(key(outputs=("a", "b")), key(outputs=("b", "a")), id="order of outputs"),
    pytest.param(key(version="1"), key(), id="the deployed version, named or not"),
    pytest.param(
        key({"x": ROW, "y": ROW}), key({"y": ROW, "x": ROW}), id="order in which inputs are named"
    ),
    pytest.param(key({"x": ROW}), key({"x": ROW.astype(">f4")}), id="byte order of this machine"),
    pytest.param(
        key({"x": np.asfortranarray(np.arange(6.0).reshape(2, 3))}),
        key({"x": np.arange(6.0).reshape(2, 3)}),
        id="order in memory",
    ),
    pytest.param(
        key({"x": np.arange(20000.0)[::2]}), key({"x": np.arange(0, 20000.0, 2)}), id="strides"
    ),
    pytest.param(key(epoch=3), key(epoch="3"), id="epoch as a number or text"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_cannot_change_an_answer_does_not(one: bytes, other: bytes) -> None:
    assert one == other


@given(NUMBERS, NUMBERS)
def test_tensors_share_a_key_exactly_when_type_shape_and_bytes_are_equal(
    a: Array, b: Array
) -> None:
    equal = (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    assert (key({"x": a}) == key({"x": b})) == equal


@given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
def test_texts_share_a_key_exactly_when_all_are_equal(a: list[bytes], b: list[bytes]) -> None:
    assert (key({"x": texts(*a)}) == key({"x": texts(*b)})) == (a == b)


VALUES = st.one_of(st.booleans(), st.integers(-2, 2), st.sampled_from(["", "0", "1", "True"]))
NAMES = st.text("abc", max_size=3)


@given(st.dictionaries(NAMES, VALUES, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3))
def test_parameters_share_a_key_exactly_when_names_types_and_values_are_equal(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    typed = [{(k, type(v), v) for k, v in said.items()} for said in (a, b)]
    assert (key(parameters=a) == key(parameters=b)) == (typed[0] == typed[1])


@given(st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES, NAMES), min_size=2, max_size=6, unique=True))
def test_no_two_tenants_or_identities_share_a_key(parts: list[tuple[str, ...]]) -> None:
    keys = [key(tenant=tenant, identity=Identity(*rest)) for tenant, *rest in parts]
    assert all(a != b for a, b in combinations(keys, 2))


def test_keys_stay_the_same_from_release_to_release() -> None:
    """What lies in stores is found by them; change SCHEME with this value."""
    found = exact_key("t", M, asking({"x": texts("é", b"\xff"), "y": ROW}, outputs=("a",)), 7)
    assert found.hex() == GOLDEN


GOLDEN = "3266d7fd3d841288bbdc04a23ecf87b28f556ca50181371d99813f5bf40ca72c"


# --- spelling


@pytest.mark.parametrize(
    ("said", "normal"),
    [
        pytest.param("Hello  World", "hello world", id="case and spaces"),
        pytest.param(" where is it?! ", "where is it", id="punctuation at the end"),
        pytest.param("Ｈｅｌｌｏ", "hello", id="width"),
        pytest.param("Straße", "strasse", id="case folded, not lowered"),
        pytest.param("a.b, c", "a.b, c", id="punctuation within stays"),
        pytest.param("?!", "?!", id="nothing but punctuation stays"),
        pytest.param("", "", id="empty"),
        pytest.param("€5.", "€5", id="symbols stay"),
        pytest.param(b"Hello", "hello", id="bytes that are UTF-8"),
        pytest.param(b"\xff\xfe", b"\xff\xfe", id="bytes that are not"),
    ],
)
def test_spelling_is_made_one(said: Any, normal: Any) -> None:
    assert normalised(asking({"t": texts(said)}), "t").inputs["t"].tolist() == [normal]


def test_one_spelling_has_one_key_apart_from_exact_ones() -> None:
    loud, quiet = (asking({"t": texts(said)}) for said in ("HELLO!", "hello"))
    assert normalised_key("t", M, loud, "t", 0) == normalised_key("t", M, quiet, "t", 0)
    assert normalised_key("t", M, quiet, "t", 0) != exact_key("t", M, quiet, 0)


@given(st.text(max_size=20))
def test_a_spelling_made_one_is_left_as_it_is(said: str) -> None:
    once = normalised(asking({"t": texts(said)}), "t")
    assert normalised(once, "t").inputs["t"].tolist() == once.inputs["t"].tolist()


# --- partitions


def partition(said: str = "a", *, embedder: str = "e1", tenant: str = "t", **more: Any) -> bytes:
    x = more.pop("x", ROW)
    return partition_key(tenant, M, asking({"t": texts(said), "x": x}, **more), "t", embedder, 0)


def test_texts_share_a_partition() -> None:
    assert partition("a") == partition("quite another")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(partition(x=-ROW), id="another input"),
        pytest.param(partition(embedder="e2"), id="the embedder"),
        pytest.param(partition(tenant="u"), id="the tenant"),
        pytest.param(partition(parameters={"p": 1}), id="a parameter"),
        pytest.param(partition(outputs=("a",)), id="the outputs"),
        pytest.param(
            partition_key("t", M, asking({"t": texts("a"), "x": ROW}), "x", "e1", 0),
            id="which input is the text",
        ),
    ],
)
def test_all_but_the_text_separates_partitions(other: bytes) -> None:
    assert other != partition()


# --- what is not cached


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param(asking(), None, id="an ordinary request"),
        pytest.param(asking(parameters={"sequence_id": 7}), "sequence", id="a sequence"),
        pytest.param(asking(parameters={"sequence_start": True}), "sequence", id="its start"),
        pytest.param(
            asking(parameters={"shared_memory_region": "r"}), "shared memory", id="shared memory"
        ),
        pytest.param(
            asking(headers={"Cache-Control": "no-store"}), "no-store", id="the header no-store"
        ),
        pytest.param(asking(parameters={"temperature": "0.7"}), "sampling", id="sampling"),
        pytest.param(asking(parameters={"temperature": "0"}), None, id="temperature 0"),
        pytest.param(
            asking(parameters={"temperature": "0.7", "seed": 1}), None, id="sampling from a seed"
        ),
        pytest.param(asking(parameters={"do_sample": True}), "sampling", id="do_sample"),
        pytest.param(
            asking({"temperature": np.array([[0.7]], "f4")}), "sampling", id="sampling by an input"
        ),
        pytest.param(
            asking({"temperature": np.array([0.7]), "random_seed": np.array([1])}),
            None,
            id="a seed by an input",
        ),
    ],
)
def test_requests_that_no_cache_may_answer(asked: InferRequest, reason: str | None) -> None:
    assert bypass_reason(asked) == reason


# --- tenants


def test_a_tenant_is_not_to_be_guessed_from_its_token() -> None:
    assert tenant_token("a", b"s1") != tenant_token("a", b"s2") != tenant_token("b", b"s2")
    assert tenant_token("a", None) == "a"
