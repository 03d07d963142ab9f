"""From a source to a proven, numbered version of a model.

spec       model.yaml                        sources/   one file a kind of source
keys       what a version is made from       gates      what it must prove
versions   folder, lock and configs          process    the child that runs an export
packages   weights as pinned packages        configs    lock + model.yaml -> config.pbtxt
precision/ FP32 -> FP16, INT8, INT4          accuracy/  is it as good, is it faster
lowering   converts, accepts or refuses      held_out   samples and limits of a model
merge      several versions -> one model     compose    what it does to their graphs
"""

from __future__ import annotations

from mmctl.exporters.spec import exportable_names
from mmctl.exporters.versions import ExportOutcome, export_model, export_models

__all__ = ["ExportOutcome", "export_model", "export_models", "exportable_names"]
