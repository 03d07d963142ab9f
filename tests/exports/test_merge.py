"""The repository's own encoder and heads, merged: what they cost and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from mmctl.errors import Refused
from mmctl.exporters.merge import merge_files, prove_merged
from mmctl.exporters.samples import Drawn
from mmctl.tensors import Array
from mmctl.triton.recipe import MergeMember, MergeRecipe
from mmctl.triton.repository import read_lock
from mmctl.workspace import read_workspace

pytestmark = pytest.mark.exports
onnxruntime = pytest.importorskip("onnxruntime")

TOKENS = ("input_ids", "attention_mask")
DRAWN = {"input_ids": Drawn(high=30_000), "attention_mask": Drawn()}


def recipe(head: str, output: str) -> MergeRecipe:
    return MergeRecipe(
        (
            MergeMember("encode", "minilm", {name: ("", name) for name in TOKENS}),
            MergeMember("head", head, {"embedding": ("encode", "embedding")}),
        ),
        {output: ("head", output)},
        1e-5,
    )


@pytest.fixture
def built(root: Path) -> Mapping[str, Path]:
    """Files of the checkout's models: `mmctl build` has made them."""
    models = read_workspace(root).models
    found = {}
    for name in ("minilm", "intent_head", "sentiment_head", "toxicity_head"):
        lock = read_lock(models / name)
        assert lock is not None
        found[name] = models / name / str(lock.version) / "model.onnx"
        if not found[name].is_file():
            pytest.skip(f"{name} is not built")
    return found


def answer(path: Path, arrays: Mapping[str, Array]) -> Array:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, dict(arrays))[0]
    return result


def test_minilm_and_the_intent_head_are_one_model(
    built: Mapping[str, Path], tmp_path: Path
) -> None:
    files = {"encode": built["minilm"], "head": built["intent_head"]}
    exported = merge_files(recipe("intent_head", "probs"), files, DRAWN, tmp_path)
    assert [str(spec) for spec in exported.signature.outputs] == ["probs: fp32[77]"]
    parity = exported.evidence[1]
    assert parity["gate"] == "parity"
    assert parity["max_difference"] <= 1e-5
    ids = np.random.default_rng(3).integers(0, 30_000, (5, 24), dtype=np.int64)
    tokens = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    apart = answer(files["head"], {"embedding": answer(files["encode"], tokens)})
    assert np.allclose(answer(tmp_path / "model.onnx", tokens), apart, rtol=1e-4, atol=1e-7)


def test_a_merge_with_another_head_is_refused(built: Mapping[str, Path], tmp_path: Path) -> None:
    wanted = recipe("sentiment_head", "score")
    merge_files(
        wanted, {"encode": built["minilm"], "head": built["sentiment_head"]}, DRAWN, tmp_path
    )
    others = {"encode": built["minilm"], "head": built["toxicity_head"]}
    with pytest.raises(Refused, match=r"`encode` and `head` cannot be merged: .*`score` differs"):
        prove_merged(tmp_path / "model.onnx", wanted, others, DRAWN)
