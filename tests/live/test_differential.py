"""Checker and real Triton judge the same generated repositories: a disagreement is a bug."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from differential import Judges
from differential_cases import Case, Config, cases, incomplete_cases, pool
from servers import Serve

pytestmark = pytest.mark.live


def judge(
    serve: Serve, folder: Path, models: Mapping[str, Config], judged: Iterable[Case], **options: Any
) -> None:
    repository = folder / "models"
    repository.mkdir()
    judges = Judges(lambda: serve(repository, load_all=False, **options), repository, models)
    verdicts = [judges.judge(case) for case in judged]
    loaded = sum(verdict.loads for verdict in verdicts)
    assert min(loaded, len(verdicts) - loaded) > len(verdicts) // 5, "cases of both kinds"
    different = [verdict.text() for verdict in verdicts if not verdict.agrees]
    assert not different, "\n\n".join(different[:3])


def test_the_checker_says_what_triton_says(serve: Serve, tmp_path: Path) -> None:
    judge(serve, tmp_path, pool(), cases(300, seed=1))


def test_and_of_what_triton_completes(serve: Serve, tmp_path: Path) -> None:
    judge(serve, tmp_path, {}, incomplete_cases(20, seed=1), complete_configs=True)
