"""T001 and T002: engines and where they are sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmctl.diagnostics import Position
from mmctl.lint.engines import EngineStamp, EngineTarget, check_engine
from mmctl.triton.releases import parse_release

STAMP = EngineStamp((10, 13, 3, 9), (1, 32), "9.0")
TARGET = EngineTarget("prod", parse_release("25.10"), capability="9.0")
OLD = EngineTarget("old", parse_release("24.10"))
SAYS_SO = replace(OLD, tensorrt=(10, 13, 3))
GUESSED = EngineTarget("guessed", parse_release("25.08"))
UNKNOWN_GPU = replace(TARGET, capability="")


def found(stamp: EngineStamp, target: EngineTarget, max_batch: int = 32) -> list[tuple[str, str]]:
    findings = check_engine(Position("model.plan"), stamp, target, max_batch)
    return [(finding.code, finding.severity.value) for finding in findings]


@pytest.mark.parametrize(
    ("stamp", "target", "max_batch", "codes"),
    [
        pytest.param(STAMP, TARGET, 32, [], id="fits"),
        pytest.param(STAMP, TARGET, 8, [], id="fewer rows than it could"),
        pytest.param(replace(STAMP, batches=None), TARGET, 0, [], id="no batch axis"),
        pytest.param(STAMP, OLD, 32, [("T001", "error")], id="another TensorRT"),
        pytest.param(STAMP, SAYS_SO, 32, [], id="the owner knows better"),
        pytest.param(STAMP, GUESSED, 32, [("T001", "warning")], id="nobody checked"),
        pytest.param(STAMP, TARGET, 64, [("T002", "error")], id="larger batches than it takes"),
        pytest.param(
            replace(STAMP, batches=(4, 32)), TARGET, 32, [("T002", "error")], id="no single"
        ),
        pytest.param(replace(STAMP, capability="8.9"), TARGET, 32, [("T002", "error")], id="GPU"),
        pytest.param(replace(STAMP, capability="8.9"), UNKNOWN_GPU, 32, [], id="unknown GPU"),
        pytest.param(
            replace(STAMP, capability="8.9"),
            replace(OLD, capability="9.0"),
            64,
            [("T001", "error"), ("T002", "error"), ("T002", "error")],
            id="all at once",
        ),
    ],
)
def test_an_engine_runs_where_version_sizes_and_gpu_fit(
    stamp: EngineStamp, target: EngineTarget, max_batch: int, codes: list[tuple[str, str]]
) -> None:
    assert found(stamp, target, max_batch) == codes


def test_the_message_names_both_versions_and_says_when_it_is_a_guess() -> None:
    (finding,) = check_engine(Position("model.plan"), STAMP, GUESSED, 32)
    assert "made by TensorRT 10.13.3.9" in finding.message
    assert "`guessed` (Triton 25.08) has TensorRT 10.13.2 (likely, not checked)" in finding.message
