"""pipeline.yaml -> a checked graph.

source    the files of a pipeline, read from disk
spec      their shape; nodes/ has one file for each kind of node
check     the whole type check: names, types, batch axis, circles, policies -> findings
graph     what is left when nothing is wrong: the compiler's input
"""

from mmctl.pipeline.check import Checked, check_pipeline
from mmctl.pipeline.findings import WIRING_RULES
from mmctl.pipeline.graph import Graph
from mmctl.pipeline.order import order_pipelines
from mmctl.pipeline.source import Asset, PipelineSource, read_pipeline

__all__ = [
    "WIRING_RULES",
    "Asset",
    "Checked",
    "Graph",
    "PipelineSource",
    "check_pipeline",
    "order_pipelines",
    "read_pipeline",
]
