"""A workspace with one model of the user's own and one pipeline, which needs no export."""

from pathlib import Path

import pytest
from file_trees import write

from mmctl.workspace import Workspace, read_workspace

ECHO = """
name: "echo"
backend: "python"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
"""

PIPELINE = """
pipeline: twice
inputs: {x: "fp32[3]"}
nodes:
  double: {step: double, inputs: {x: x}, outputs: {y: "fp32[3]"}, instances: {cpu: 2}}
  echo: {model: echo, inputs: {x: double.y}}
outputs: {y: echo.y}
"""

STEPS = "def double(x):\n    return {'y': x * 2}\n"


@pytest.fixture
def small(workspace: Path) -> Workspace:
    write(
        workspace,
        {
            "model_repository/echo/config.pbtxt": ECHO,
            "model_repository/echo/1/model.py": "# the user's own\n",
            "ensembles/twice/pipeline.yaml": PIPELINE,
            "ensembles/twice/steps.py": STEPS,
        },
    )
    return read_workspace(workspace)
