"""Which saved files start a rebuild."""

from pathlib import Path

import pytest

from mmctl.serving.watch import is_source
from mmctl.workspace import read_workspace


@pytest.mark.parametrize(
    ("path", "watched"),
    [
        ("ensembles/p/steps.py", True),
        ("ensembles/p/pipeline.yaml", True),
        ("ensembles/common/words.py", True),
        ("ensembles/p/__pycache__/steps.pyc", False),
        ("ensembles/p/.steps.py.swp", False),
        ("model_repository/m/model.yaml", True),
        ("model_repository/m/source.py", True),
        ("model_repository/m/3/model.onnx", False),
        ("model_repository/m/.3.tmp/steps.py", False),
        ("model_repository/m/config.pbtxt", False),
        ("model_repository/m/model.lock", False),
        ("model_repository/own/config.pbtxt", True),
        ("model_repository/own/1/model.py", True),
    ],
)
def test_people_write_sources_and_mmctl_the_rest(workspace: Path, path: str, watched: bool) -> None:
    (workspace / "model_repository" / "m").mkdir(parents=True)
    (workspace / "model_repository" / "m" / "model.yaml").write_text("")
    assert is_source(read_workspace(workspace), workspace / path) is watched
