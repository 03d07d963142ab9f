"""A workspace with a pipeline, a model that it calls and one that nobody calls."""

from pathlib import Path

import pytest
from file_trees import write

from mmctl.stack.inventory import Inventory, ServedModel, ServedNode
from mmctl.workspace import Workspace, read_workspace

CONFIG = """
name: "NAME"
backend: "python"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
"""

ENSEMBLE = """
name: "by_hand"
platform: "ensemble"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
ensemble_scheduling { step {
  model_name: "inner" model_version: -1
  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }
} }
"""

PIPELINE = """
pipeline: twice
inputs: {x: "fp32[3]"}
nodes:
  double: {step: double, inputs: {x: x}, outputs: {y: "fp32[3]"}, instances: {cpu: 2}}
  echo: {model: echo, inputs: {x: double.y}}
outputs: {y: echo.y}
"""

GUARDED = """
pipeline: guarded
deadline_ms: 1000
inputs: {x: "fp32[3]"}
nodes:
  again: {model: twice, inputs: {x: x}}
  once: {model: echo, inputs: {x: again.y}}
  more: {model: echo, inputs: {x: once.y}, max_in_flight: 40}
outputs: {y: more.y}
"""

JOINED = """
pipeline: joined
inputs: {x: "fp32[3]"}
nodes:
  a: {step: double, inputs: {x: x}, outputs: {y: "fp32[3]"}}
  b: {step: double, inputs: {x: a.y}, outputs: {y: "fp32[3]"}}
outputs: {y: b.y}
"""

STEPS = "def double(x):\n    return {'y': x * 2}\n"


@pytest.fixture
def space(workspace: Path) -> Workspace:
    models = {
        f"model_repository/{name}/config.pbtxt": CONFIG.replace("NAME", name)
        for name in ("echo", "alone", "inner")
    }
    pipelines = {"twice": PIPELINE, "guarded": GUARDED, "joined": JOINED}
    write(
        workspace,
        {
            **models,
            "model_repository/by_hand/config.pbtxt": ENSEMBLE,
            **{f"ensembles/{name}/pipeline.yaml": text for name, text in pipelines.items()},
            "ensembles/twice/steps.py": STEPS,
            "ensembles/joined/steps.py": STEPS,
            "ensembles/twice/requirements.txt": "six==1.16.0\n",
        },
    )
    return read_workspace(workspace)


@pytest.fixture
def inventory() -> Inventory:
    return Inventory(
        models=(
            ServedModel("net", "model", entry=False),
            ServedModel("flow__cut", "step", entry=False),
            ServedModel("flow", "ensemble", entry=True),
            ServedModel("talk", "bls", entry=True),
        ),
        nodes=(ServedNode("flow", "cut", "flow__cut"), ServedNode("flow", "look", "net")),
    )
