"""Whole pipelines and what they compile to: a change shows as a diff of tests/golden.

A case is a folder: pipeline.yaml, steps.py and modules beside it, models.yaml with the signatures
of what it calls, expected/MODEL/{config.pbtxt,step.json,plan.json}. `--update-golden` rewrites
expected/.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from pipelines import graph_of, signature, source

from mmctl.compiler import compile_pipeline
from mmctl.triton.pbtxt import render_config

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


def generated(case: Path) -> dict[str, str]:
    """Text by path inside expected/, of all that a reviewer would look at."""
    modules = {path.stem: path.read_text() for path in case.glob("*.py")}
    pipeline = source((case / "pipeline.yaml").read_text(), modules=modules, name=case.name)
    entries: dict[str, Any] = yaml.safe_load((case / "models.yaml").read_text())
    models = {
        name: signature(entry["inputs"], entry["outputs"], entry["max_batch"])
        for name, entry in entries.items()
    }
    texts = {}
    for model in compile_pipeline(graph_of(pipeline, models), pipeline).models:
        for path, config in model.configs.items():
            texts[f"{model.name}/{path}"] = render_config(config)
        files = model.pinned(dict.fromkeys(model.calls, 7), {}).files
        for path in ("step.json", "plan.json"):
            if path in files:
                texts[f"{model.name}/{path}"] = files[path].decode()
    return texts


@pytest.mark.parametrize("name", CASES)
def test_a_pipeline_compiles_to_what_is_expected(name: str, request: pytest.FixtureRequest) -> None:
    expected = GOLDEN / name / "expected"
    texts = generated(GOLDEN / name)
    if request.config.getoption("--update-golden"):
        shutil.rmtree(expected, ignore_errors=True)
        for path, text in texts.items():
            (expected / path).parent.mkdir(parents=True, exist_ok=True)
            (expected / path).write_text(text)
    found = {
        path.relative_to(expected).as_posix(): path.read_text()
        for path in expected.rglob("*")
        if path.is_file()
    }
    assert texts == found
