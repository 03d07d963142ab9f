"""`engine:` in model.yaml: that, and how, a TensorRT engine serves the model on GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mmctl.documents import Entry

BuilderName = Literal["auto", "container", "trtexec", "inprocess"]


class EngineEntry(Entry):
    """The engine's precision is that of the model: TensorRT 11 takes it from the file alone."""

    workspace_mb: Annotated[int, Field(ge=64, le=1_000_000)] = 4096
    builder: BuilderName = "auto"
