"""`cache` of nodes and `cache_bytes`: what they become, and where an answer cannot be kept."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pipelines import MODELS, checked, graph_of, lines, source

from mmctl.diagnostics import Severity
from mmctl.pipeline import Checked, check_pipeline
from mmctl.pipeline.caching import UNKNOWN_CONTENT, doubt_of
from mmctl.pipeline.graph import Policy, Rules

TEXT = """
pipeline: demo
inputs: {e: "fp32[4]", lang: string}
nodes:
  head: {model: head, inputs: {embedding: e}}
  spell: {model: speller, inputs: {text: lang}}
outputs: {score: head.score, lang_out: spell.text}
"""
HEAD = "head: {model: head, inputs: {embedding: e}"
STEP = """
pipeline: demo
inputs: {x: fp32}
nodes:
  a: {step: a, inputs: {x: x}, outputs: {y: fp32}, cache: {ttl_s: 60}}
outputs: {y: a.y}
"""
STEPS = "def a(x):\n    return {'y': x}\n"


def with_key(written: str) -> str:
    """The pipeline when `head` has this key; it begins at column 47 of line 4."""
    return TEXT.replace(HEAD, f"{HEAD}, {written}")


def doubted(text: str, doubts: Mapping[str, str]) -> Checked:
    return check_pipeline(source(text), MODELS, {}, doubts)


@pytest.mark.parametrize("written", ["cache: {ttl_s: 60}", "cache: {ttl_s: 60.0}"])
def test_a_model_may_have_it(written: str) -> None:
    assert graph_of(source(with_key(written))).node("head").policy == Policy(cache=60)


def test_a_step_may_have_it() -> None:
    assert graph_of(source(STEP, steps=STEPS)).node("a").policy == Policy(cache=60)


def test_an_instance_may_have_less_room() -> None:
    graph = graph_of(source(f"cache_bytes: 1MiB{with_key('cache: {ttl_s: 60}')}"))
    assert graph.rules == Rules(cache_bytes=1 << 20)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("cache: {ttl_s: 0}", "4:62 Y005 `ttl_s`: input should be greater than 0",
                     id="no time"),
        pytest.param("cache: {ttl_s: -1}", "4:62 Y005 `ttl_s`: input should be greater than "
                     "0", id="less than no time"),
        pytest.param("cache: {ttl_s: inf}", "4:62 Y005", id="for ever"),
        pytest.param("cache: {ttl_s: nan}", "4:62 Y005", id="no number"),
        pytest.param("cache: {ttl_s: soon}", "4:62 Y005", id="a word"),
        pytest.param("cache: {}", "4:", id="no ttl_s"),
        pytest.param("cache: 60", "4:", id="a number alone"),
        pytest.param("cache: {ttl_s: 60, max: 3}", "4:", id="another key"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_found_at_its_place(written: str, expected: str) -> None:
    [line] = lines(checked(with_key(written)))
    assert line.startswith(expected)


def test_a_switch_has_none() -> None:
    text = """
    pipeline: demo
    inputs: {x: fp32}
    nodes:
      a: {model: double, inputs: {x: x}}
      b: {model: double, inputs: {x: x}}
      s: {switch: ["x > 1", a, {else: b}], cache: {ttl_s: 60}}
    outputs: {y: s.y}
    """
    assert any(line.startswith("6:") for line in lines(checked(text)))


def test_a_model_whose_content_is_not_known_cannot_have_it() -> None:
    result = doubted(with_key("cache: {ttl_s: 60}"), {"head": UNKNOWN_CONTENT})
    [line] = lines(result)
    assert line == f"4:47 Y119 `head.cache`: `head` {UNKNOWN_CONTENT}"
    assert lines(doubted(TEXT, {"head": UNKNOWN_CONTENT})) == []


@pytest.mark.parametrize(
    ("policy", "doubt"),
    [
        pytest.param("on_error: {y: -1}", "answers without `a` where that fails, and such "
                     "answers are not kept", id="a value in place of a failure"),
        pytest.param("timeout_ms: 9, retries: 1, hedge_ms: 3", None, id="a failure that is told"),
        pytest.param("cache: {ttl_s: 9}", None, id="a cache of its own"),
    ],
)  # fmt: skip
def test_a_pipeline_whose_answers_may_rest_on_a_fallback_is_in_doubt(
    policy: str, doubt: str | None
) -> None:
    text = f"""
    pipeline: demo
    inputs: {{x: fp32}}
    nodes:
      a: {{model: double, inputs: {{x: x}}, {policy}}}
    outputs: {{y: a.y}}
    """
    graph = graph_of(source(text))
    assert doubt_of(graph, {}) == doubt
    assert doubt_of(graph, {"double": "is odd"}) == (doubt or "calls `double`, which is odd")


def test_room_for_no_node_is_a_warning() -> None:
    result = checked(f"cache_bytes: 1MiB{TEXT}")
    assert lines(result) == ["1:1 Y134 `cache_bytes` bounds nothing: no node has `cache`"]
    assert [finding.severity for finding in result.findings] == [Severity.WARNING]
