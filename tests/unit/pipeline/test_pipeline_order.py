"""Pipelines that call pipelines: callees first, and circles shown with their path."""

from __future__ import annotations

import pytest
from pipelines import source

from mmctl.errors import InvalidFiles
from mmctl.pipeline import PipelineSource, order_pipelines


def calling(name: str, *callees: str) -> PipelineSource:
    nodes = "".join(f"  n{i}: {{model: {c}, inputs: {{x: x}}}}\n" for i, c in enumerate(callees))
    return source(f"pipeline: {name}\nnodes:\n{nodes}", name=name)


def test_callees_come_first() -> None:
    pipelines = [calling("a", "b", "resnet"), calling("b", "c"), calling("c")]
    assert order_pipelines(pipelines) == ["c", "b", "a"]


def test_models_that_are_no_pipelines_do_not_matter() -> None:
    pipeline = calling("a", "resnet", "resnet")
    assert order_pipelines([pipeline]) == ["a"]
    assert pipeline.called_names() == {"resnet"}


@pytest.mark.parametrize(
    ("pipelines", "path"),
    [
        pytest.param([calling("a", "a")], {"a -> a"}, id="itself"),
        pytest.param([calling("a", "b"), calling("b", "a")], {"a -> b -> a", "b -> a -> b"},
                     id="each other"),
    ],
)  # fmt: skip
def test_a_circle_is_an_error_at_the_call(pipelines: list[PipelineSource], path: set[str]) -> None:
    with pytest.raises(InvalidFiles) as error:
        order_pipelines(pipelines)
    [finding] = error.value.findings
    assert finding.code == "Y128"
    assert finding.message.partition(": ")[2] in path
    caller = finding.message.partition(": ")[2].split(" -> ")[0]
    assert finding.path == f"ensembles/{caller}/pipeline.yaml"
    assert (finding.line, finding.column) == (3, 15)


@pytest.mark.parametrize(
    ("pipelines", "foreign", "path", "at"),
    [
        pytest.param([calling("a", "old")], {"old": ["a"]}, "a -> old -> a", 15,
                     id="an ensemble that calls its caller"),
        pytest.param([calling("a", "old")], {"old": ["older"], "older": ["a", "resnet"]},
                     "a -> old -> older -> a", 15, id="through two ensembles"),
    ],
)  # fmt: skip
def test_a_circle_through_the_users_own_ensembles_is_an_error_at_the_call(
    pipelines: list[PipelineSource], foreign: dict[str, list[str]], path: str, at: int
) -> None:
    with pytest.raises(InvalidFiles) as error:
        order_pipelines(pipelines, foreign)
    [finding] = error.value.findings
    assert (finding.code, finding.line, finding.column) == ("Y128", 3, at)
    assert finding.message == f"pipelines call each other in a circle: {path}"


def test_a_pipeline_comes_after_what_the_users_ensembles_call_for_it() -> None:
    assert order_pipelines([calling("a", "old"), calling("b")], {"old": ["b"]}) == ["b", "a"]


def test_ensembles_that_call_each_other_are_no_matter_of_a_pipeline() -> None:
    assert order_pipelines([calling("a")], {"old": ["older"], "older": ["old"]}) == ["a"]


def test_a_file_with_mistakes_still_says_what_it_calls() -> None:
    text = "nodes: {a: {model: b, bad: 1}, c: 3, d: {model: [x]}}"
    assert source(text).called_names() == {"b"}
    assert source("nodes: [a]").called_names() == set()
    assert source("[]").called_names() == set()
