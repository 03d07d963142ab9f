"""Repositories before and after `mmctl check --fix`, on a real Triton."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import ensemble, model, repository
from servers import Serve

from mmctl.lint.fix import fix_repository, write_fixes

pytestmark = pytest.mark.live

RIGHT = model("x:FP32[4]", "y:FP32[4]", batch=8)
CODE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""

WRONG = {
    "right": RIGHT,
    "named": f'name: "other"\n{RIGHT}',
    "typed": RIGHT.replace("TYPE_FP32", "TYPE_FLOAT32"),
    "worded": RIGHT.replace('backend: "python"', 'platform: "python"'),
    "sized": f"{RIGHT}dynamic_batching {{ preferred_batch_size: [ 4, 16 ] }}\n",
}
FLOWS = {
    "without_folder": ensemble("x:FP32[4]", "y:FP32[4]", "right x=x -> y=y"),
    "without_version": ensemble("x:FP32[4]", "y:FP32[4]", "right@ x=x -> y=y"),
}


def test_what_was_repaired_loads(serve: Serve, tmp_path: Path) -> None:
    files = {f"{name}/config.pbtxt": config for name, config in {**WRONG, **FLOWS}.items()}
    files |= {f"{name}/1/model.py": CODE for name in WRONG}
    files["without_version/1/.gitkeep"] = ""
    read = repository(tmp_path / "models", files)
    assert set(serve(tmp_path / "models").failures()) == {*WRONG, *FLOWS} - {"right"}
    write_fixes(fix_repository(read))
    assert serve(tmp_path / "models").failures() == {}
