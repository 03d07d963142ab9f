"""The graph of `scripts/bench_forms`: every form that mmctl makes, and what is written by hand,
answers what its functions give.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from bench_graph import GRAPH, GRAPHS, ask, requests, serving_all, stacked

from mmctl.server.runtime import Runtime

pytestmark = pytest.mark.live

ROWS = requests(16)


@pytest.fixture(scope="module")
def client(runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tritonclient.grpc import InferenceServerClient

    with (
        serving_all(runtime, tmp_path_factory.mktemp("state"), print) as server,
        InferenceServerClient(server.grpc) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def scores() -> dict[str, Any]:
    """What the functions give for the rows, by node; `graph` is the verdict over all."""
    steps = load(GRAPH / "steps.py")
    sent = stacked(ROWS)
    text = np.array([value.decode() for value in sent["text"][:, 0]], object)
    branches = {
        "text": steps.score_text(text)["score"],
        "image": steps.score_image(sent["image"])["score"],
        "words": steps.find_words(text)["score"],
    }
    return {**branches, "graph": steps.judge(**branches)["score"]}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("graph_steps", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_scores_tell_rows_apart(scores: dict[str, Any]) -> None:
    assert len(set(scores["graph"].round(4).tolist())) > len(ROWS) / 2
    assert 0 < scores["words"].mean() < 1


@pytest.mark.parametrize("model", GRAPHS)
def test_every_form_answers_what_the_functions_give(
    client: Any, scores: dict[str, Any], model: str
) -> None:
    answer = ask(client, model, stacked(ROWS))
    assert answer[:, 0] == pytest.approx(scores["graph"], abs=1e-5)


@pytest.mark.parametrize("model", GRAPHS)
def test_requests_that_are_under_way_together_keep_their_answers(
    client: Any, scores: dict[str, Any], model: str
) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: ask(client, model, row)[0, 0], ROWS))
    assert answers == pytest.approx(scores["graph"].tolist(), abs=1e-5)


@pytest.mark.parametrize("prefix", ["hand_", "ensemble__", "bls__"])
@pytest.mark.parametrize("node", ["text", "image", "words"])
def test_each_branch_answers_alone(
    client: Any, scores: dict[str, Any], prefix: str, node: str
) -> None:
    name = "image" if node == "image" else "text"
    answer = ask(client, prefix + node, {name: stacked(ROWS)[name]})
    assert answer[:, 0] == pytest.approx(scores[node], abs=1e-5)
