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
    assert pipeline.pipelines_called({"resnet": None}) == {"resnet"}


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


def test_a_file_with_mistakes_still_says_what_it_calls() -> None:
    text = "nodes: {a: {model: b, bad: 1}, c: 3, d: {model: [x]}}"
    assert source(text).called_names() == {"b"}
    assert source("nodes: [a]").called_names() == set()
    assert source("[]").called_names() == set()
