"""Where CI=true is set, a skipped test is a failed one: scripts/setup and scripts/test bring what
tests need, so a skip would hide a set-up that is broken. A plugin of pytest; conftest.py takes it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

IS_CI = os.environ.get("CI") == "true"
EXCUSES = ("beside the checkout", "a GPU here", "TensorRT here")
"""Words of reasons that hold in CI too: data that is not ours to bring, and machines that have more
than a test wants.
"""

Report = TypeVar("Report", pytest.CollectReport, pytest.TestReport)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return judged((yield))


def judged(report: Report) -> Report:
    """A skip has its place and reason as a tuple; that of an expected failure has none."""
    if IS_CI and report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if not any(words in reason for words in EXCUSES):
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: {reason} (no test may be skipped where CI=true)"
    return report
