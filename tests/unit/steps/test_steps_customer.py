"""Both customer service pipelines give the same answers, for they are made of the same parts."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

INTENT = np.array(["change_pin", "card_arrival"], object)
CONFIDENCE = np.array([0.98765432, 0.1], np.float32)
ENTITIES = np.array(['[{"type": "DATE", "text": "ë", "start": 0, "end": 1}]', "[]"], object)
SENTIMENT = np.array(["negative", "neutral"], object)


def nodes_of(root: Path, pipeline: str) -> dict[str, Any]:
    text = (root / f"ensembles/{pipeline}/pipeline.yaml").read_text("utf-8")
    nodes: dict[str, Any] = yaml.safe_load(text)["nodes"]
    return nodes


def test_the_state_of_the_chain_loses_nothing(steps_of: Callable[[str], ModuleType]) -> None:
    chain, direct = steps_of("customer_service_chain"), steps_of("customer_service")
    text = np.array(["one", "two"], object)
    first = chain.note_intent(text, INTENT, CONFIDENCE)
    second = chain.note_entities(first["text"], first["state"], ENTITIES)
    third = chain.note_sentiment(second["state"], SENTIMENT)
    answer = chain.answer(third["state"])
    assert second["text"].tolist() == ["one", "two"]
    assert answer["intent"].tolist() == INTENT.tolist()
    assert answer["confidence"].dtype == np.float32
    assert (answer["confidence"] == CONFIDENCE).all()
    assert answer["entities"].tolist() == ENTITIES.tolist()
    assert answer["sentiment"].tolist() == SENTIMENT.tolist()
    expected = direct.write_reply(INTENT, CONFIDENCE, ENTITIES, SENTIMENT)
    assert answer["reply"].tolist() == expected["reply"].tolist()


@pytest.mark.parametrize(
    ("pipeline", "node", "twin"),
    [("intent", "best", "intent"), ("sentiment", "mood", "mood"), ("entities", "tokens", "tokens")],
)
def test_ready_made_steps_have_the_same_options(
    root: Path, pipeline: str, node: str, twin: str
) -> None:
    single, joined = nodes_of(root, pipeline)[node], nodes_of(root, "customer_service")[twin]
    assert single["step"] == joined["step"]


@pytest.mark.parametrize("pipeline", ["intent", "customer_service"])
def test_intents_are_named_in_the_order_of_the_head(root: Path, pipeline: str) -> None:
    head = np.load(root / "model_repository/intent_head/head.npz", allow_pickle=False)
    names = (root / f"ensembles/{pipeline}/assets/intents.txt").read_text("utf-8").splitlines()
    assert names == head["classes"].tolist()


def test_the_tagger_has_a_row_for_every_tag(root: Path) -> None:
    import spans

    head = np.load(root / "model_repository/entity_tagger/tagger.npz", allow_pickle=False)
    assert len(head["weight"]) == len(head["bias"]) == len(spans.TAGS)


def test_both_pipelines_have_the_same_samples(root: Path) -> None:
    samples = [
        {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
        for folder in (
            root / "ensembles/customer_service/samples",
            root / "ensembles/customer_service_chain/samples",
        )
    ]
    assert samples[0] == samples[1]
    assert len(samples[0]) >= 4
