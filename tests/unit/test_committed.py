"""What this repository commits of its own models and pipelines."""

from pathlib import Path

import pytest

from mmctl.building.check import check_workspace
from mmctl.diagnostics import Severity
from mmctl.lint.repository import Target
from mmctl.triton.repository import read_lock
from mmctl.workspace import read_workspace


@pytest.mark.parametrize(
    ("model", "cpu"),
    [pytest.param("minilm_int8", 0.55, id="MiniLM in INT8")],
)
def test_a_converted_model_has_evidence_that_leaves_no_doubt(
    root: Path, model: str, cpu: float
) -> None:
    """`cpu` is the most of FP32's CPU time that it may take, at each batch."""
    lock = read_lock(root / "model_repository" / model)
    assert lock is not None
    gates = {gate["gate"]: gate for gate in lock.evidence if gate.get("file") == "model.onnx"}
    assert list(gates) == ["conversion", "accuracy", "batch law", "speed"]
    assert [gate for gate in gates.values() if "warning" in gate] == []
    accuracy = gates["accuracy"]
    assert accuracy["interval"][0] >= accuracy["limit"]
    assert max(row["cpu_interval"][1] for row in gates["speed"]["ratios"]) <= cpu


def test_intent_int8_is_intent_on_another_encoder(root: Path) -> None:
    exact, int8 = (root / "ensembles" / name for name in ("intent", "intent_int8"))
    _comment, *lines = (exact / "pipeline.yaml").read_text().splitlines()
    wanted = [line.replace("pipeline: intent", "pipeline: intent_int8") for line in lines]
    wanted = [line.replace("model: minilm", "model: minilm_int8") for line in wanted]
    assert (int8 / "pipeline.yaml").read_text().splitlines()[1:] == wanted
    for path in (p for folder in ("assets", "samples") for p in (exact / folder).iterdir()):
        assert (int8 / path.relative_to(exact)).read_bytes() == path.read_bytes()


def test_the_checker_has_only_remarks(root: Path) -> None:
    """On a clean checkout as on a built one: locks stand for the weights."""
    checked = check_workspace(read_workspace(root), Target())
    wrong = [f.text() for f in checked.findings if f.severity is not Severity.INFO]
    assert (wrong, checked.models > 50, checked.pipelines > 10) == ([], True, True)
