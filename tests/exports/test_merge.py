"""The repository's own encoder and heads, merged: what they cost and whether they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from mmctl.errors import Refused
from mmctl.exporters.merge import merge_files, prove_merged
from mmctl.exporters.samples import Drawn
from mmctl.tensors import Array
from mmctl.triton.recipe import MergeMember, MergeRecipe

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


Exported = Callable[[str], Path]


def answer(path: Path, arrays: Mapping[str, Array]) -> Array:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, dict(arrays))[0]
    return result


def test_minilm_and_the_intent_head_are_one_model(exported: Exported, tmp_path: Path) -> None:
    files = {"encode": exported("minilm"), "head": exported("intent_head")}
    merged = merge_files(recipe("intent_head", "probs"), files, DRAWN, tmp_path)
    assert [str(spec) for spec in merged.signature.outputs] == ["probs: fp32[77]"]
    parity = merged.evidence[1]
    assert parity["gate"] == "parity"
    assert parity["max_difference"] <= 1e-5
    ids = np.random.default_rng(3).integers(0, 30_000, (5, 24), dtype=np.int64)
    tokens = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    apart = answer(files["head"], {"embedding": answer(files["encode"], tokens)})
    assert np.allclose(answer(tmp_path / "model.onnx", tokens), apart, rtol=1e-4, atol=1e-7)


def test_a_merge_with_another_head_is_refused(exported: Exported, tmp_path: Path) -> None:
    wanted, encode = recipe("sentiment_head", "score"), exported("minilm")
    files = {"encode": encode, "head": exported("sentiment_head")}
    merge_files(wanted, files, DRAWN, tmp_path)
    others = {"encode": encode, "head": exported("toxicity_head")}
    with pytest.raises(Refused, match=r"`encode` and `head` cannot be merged: .*`score` differs"):
        prove_merged(tmp_path / "model.onnx", wanted, others, DRAWN)
