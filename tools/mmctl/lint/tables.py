"""The rules about repositories, a table for each family: the one place to add another."""

from __future__ import annotations

from mmctl.lint.code.bls import BLS_CHECKS
from mmctl.lint.configs.batching import BATCHING_CHECKS
from mmctl.lint.configs.instances import INSTANCE_CHECKS
from mmctl.lint.configs.layout import LAYOUT_CHECKS
from mmctl.lint.configs.model import CONFIG_CHECKS
from mmctl.lint.configs.sequences import SEQUENCE_CHECKS
from mmctl.lint.configs.tensors import TENSOR_CHECKS
from mmctl.lint.configs.warmup import WARMUP_CHECKS
from mmctl.lint.engine_files import ENGINE_CHECKS
from mmctl.lint.ensembles.requests import REQUEST_CHECKS
from mmctl.lint.ensembles.steps import STEP_CHECKS
from mmctl.lint.ensembles.tensors import TENSOR_CHECKS as ENSEMBLE_TENSOR_CHECKS
from mmctl.lint.ensembles.wiring import ENSEMBLE_CHECKS
from mmctl.lint.onnx.batches import ONNX_BATCH_CHECKS
from mmctl.lint.onnx.load import ONNX_LOAD_CHECKS
from mmctl.lint.onnx.tensors import ONNX_TENSOR_CHECKS
from mmctl.lint.rules import Check

CHECKS: tuple[Check, ...] = (
    *CONFIG_CHECKS,
    *TENSOR_CHECKS,
    *SEQUENCE_CHECKS,
    *BATCHING_CHECKS,
    *INSTANCE_CHECKS,
    *WARMUP_CHECKS,
    *LAYOUT_CHECKS,
    *ONNX_LOAD_CHECKS,
    *ONNX_TENSOR_CHECKS,
    *ONNX_BATCH_CHECKS,
    *ENGINE_CHECKS,
    *ENSEMBLE_CHECKS,
    *STEP_CHECKS,
    *ENSEMBLE_TENSOR_CHECKS,
    *REQUEST_CHECKS,
    *BLS_CHECKS,
)
