"""What `scripts/bench_forms` compares with is right by itself: no server is needed to see that."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from bench_graph import BASELINES, FORMS, write_by_hand, write_workspace

from mmctl.building.build import compile_only
from mmctl.triton.config import ModelConfig
from mmctl.triton.pbtxt import parse_config
from mmctl.triton.repository import CONFIG

SOURCES = sorted(BASELINES.rglob("*.py"))
SAME = ("text", "image", "words", "verdict")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(BASELINES)))
def test_every_file_is_python_of_the_oldest_stub(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


def test_the_graph_compiles_to_the_form_that_each_copy_pins(tmp_path: Path) -> None:
    planned = compile_only(write_workspace(tmp_path), [])
    assert {plan.source.name: plan.compiled.form for plan in planned} == {
        form: form for form in FORMS
    }


@pytest.mark.parametrize("node", SAME)
def test_a_step_by_hand_is_configured_as_the_generated_one(tmp_path: Path, node: str) -> None:
    workspace = write_workspace(tmp_path)
    compile_only(workspace, ["ensemble"])
    write_by_hand(tmp_path / "tree")
    generated = config_in(workspace.models / f"ensemble__{node}")
    by_hand = config_in(tmp_path / "tree" / f"hand_{node}")
    for key in ("inputs", "outputs", "max_batch_size", "batching", "instances", "backend"):
        assert getattr(by_hand, key) == getattr(generated, key), key


def config_in(folder: Path) -> ModelConfig:
    return parse_config((folder / CONFIG).read_text(), where=folder.name)
