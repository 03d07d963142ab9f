"""mmctl: multi-model pipelines, compiled to NVIDIA Triton Inference Server."""

__version__ = "0.1.0"
