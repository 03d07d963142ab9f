"""torch modules: exported and proven, or refused with the reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_folders import snapshot, write_model

from mmctl.errors import InputError, MmctlError, Refused, WorldError
from mmctl.exporters import export_model
from mmctl.exporters.base import Exported

pytestmark = [pytest.mark.exports, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("torch")

YAML = 'source: {torch: "source:build", outputs: [y]}\n'

MODULE = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return {forward}


def build():
    return Net(), {{"x": torch.randn(2, 4)}}
"""

TWO_OUTPUTS = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, ids, mask):
        states = self.embedding(ids) * mask.unsqueeze(-1)
        return {"embedding": states.sum(1), "score": self.head(states.sum(1)).squeeze(1)}


def build(packages):
    assert packages.name == "packages"
    ids = torch.randint(0, 50, (2, 8))
    return Net(), {"ids": ids, "mask": torch.ones_like(ids)}, {"ids": ("seq",), "mask": ("seq",)}
"""

ExportHere = Callable[..., Exported]


def names(exported: Exported) -> list[str]:
    return [str(spec) for spec in (*exported.signature.inputs, *exported.signature.outputs)]


def test_names_free_axes_and_single_values_arrive_in_the_file(
    export_here: ExportHere, workspace: Path
) -> None:
    exported = export_here('source: {torch: "source:build"}\n', source_py=TWO_OUTPUTS)
    assert names(exported) == [
        "ids: int64[-1]",
        "mask: int64[-1]",
        "embedding: fp32[8]",
        "score: fp32",
    ]
    checker, parity, law = exported.evidence
    assert checker == {"gate": "onnx checker", "ir": 10, "opset": 20}
    assert parity["sizes"] == [{"seq": 8}, {"seq": 4}, {"seq": 16}]
    assert parity["max_difference"] <= 1e-6
    assert law["max_difference"] <= 1e-6
    content = (workspace / "out" / "model.onnx").read_bytes()
    assert str(workspace).encode() not in content, "no path of this machine is in the file"


def test_equal_sources_give_equal_bytes(export_here: ExportHere, workspace: Path) -> None:
    file = workspace / "out" / "model.onnx"
    export_here('source: {torch: "source:build"}\n', source_py=TWO_OUTPUTS)
    first = file.read_bytes()
    export_here('source: {torch: "source:build"}\n', source_py=TWO_OUTPUTS)
    assert file.read_bytes() == first


@pytest.mark.parametrize(
    ("forward", "kind", "said"),
    [
        pytest.param(
            "x.view(2, -1)",
            Refused,
            r"output `y` has shape \[2, 2\] for a batch of 1: its first axis is not the batch",
            id="a view of two rows",
        ),
        pytest.param(
            "x[x > 0]",
            Refused,
            "output `y` has `u0` as first axis, so it cannot carry a batch",
            id="as many rows as the data says, which for the example is one each",
        ),
        pytest.param(
            "x - x.mean(0)",
            Refused,
            r"rows change with their batch: `y` differs by \d\S* of its scale",
            id="the mean of the batch",
        ),
        pytest.param(
            "x + torch.randn_like(x)",
            Refused,
            r"the source is not repeatable: `y` differs by \d",
            id="randn in forward",
        ),
        pytest.param(
            "x if x.sum() > 0 else -x",
            InputError,
            "torch cannot export the module: Could not guard on data-dependent expression",
            id="a branch on values",
        ),
        pytest.param(
            "torch.stack([x[i] * 2 for i in range(x.shape[0])])",
            InputError,
            "torch cannot export the module: .*tracing inferred a static shape of 2",
            id="a loop over the batch",
        ),
        pytest.param(
            "x.to('nowhere')",
            InputError,
            "the module fails on its own example inputs: RuntimeError",
            id="a forward that fails",
        ),
        pytest.param(
            "(x, x + 1)",
            InputError,
            "`outputs` names 1 tensors, the module returns 2",
            id="more outputs than names",
        ),
        pytest.param(
            "{'y': x + 1, 'n': 3}", InputError, "returns a int among its outputs", id="no tensor"
        ),
    ],
)
def test_bad_modules(
    export_here: ExportHere, forward: str, kind: type[MmctlError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        export_here(YAML, source_py=MODULE.format(forward=forward))


def test_a_view_of_two_rows_is_accepted_without_batching(export_here: ExportHere) -> None:
    exported = export_here(
        YAML + "batching: none\n", source_py=MODULE.format(forward="x.view(2, -1)")
    )
    assert names(exported) == ["x: fp32[2,4]", "y: fp32[2,4]"]
    assert exported.signature.max_batch == 0


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("Net()", "`build` returns a Net"),
        ("(1, {'x': torch.randn(2, 4)})", "`build` returns a int where a torch.nn.Module belongs"),
        ("(Net(), torch.randn(2, 4))", "example inputs of `build` are no dict of tensors"),
        ("(Net(), {'x': 3})", "example input `x` of `build` is not a tensor"),
        ("(Net(), {'x': torch.randn(1, 4)})", "no common batch of 2 or more rows"),
        ("(Net(), {'x': torch.zeros(2, 4)})", "rows of the example inputs of `build` are all equ"),
        ("(Net(), {'x': torch.randn(2, 4)}, {'z': ('a',)})", "free axes are named for `z`"),
        (
            "(Net(), {'x': torch.randn(2, 4)}, {'x': ('a', 'b')})",
            r"free axes of `x` are \('a', 'b'",
        ),
        ("1 / 0", r"source.py:11: ZeroDivisionError: division by zero"),
    ],
)
def test_what_build_must_return(export_here: ExportHere, returned: str, said: str) -> None:
    source = MODULE.format(forward="x + 1").replace(
        'return Net(), {"x": torch.randn(2, 4)}', f"return {returned}"
    )
    with pytest.raises(InputError, match=said):
        export_here(YAML, source_py=source)


def test_code_that_does_not_parse_is_told_with_its_line(export_here: ExportHere) -> None:
    with pytest.raises(InputError, match=r"^source.py:2: SyntaxError"):
        export_here(YAML, source_py="import torch\ndef build(:\n")
    with pytest.raises(InputError, match=r"source.py has no function `build`"):
        export_here(YAML, source_py="import torch\n")


CRASH = """\
import os, signal


def build():
    os.kill(os.getpid(), signal.SIGSEGV)
"""

SLEEPER = """\
import os, time
from pathlib import Path


def build(packages):
    (packages.parent / "child.pid").write_text(str(os.getpid()))
    time.sleep(600)
"""


def test_a_crash_of_a_native_library_is_an_error_message(workspace: Path) -> None:
    space = write_model(workspace, "net", YAML, source_py=CRASH)
    before = snapshot(space.models)
    with pytest.raises(
        WorldError, match="export of `net` died with SIGSEGV, after it said:"
    ) as caught:
        export_model(space, "net", say=lambda _line: None)
    assert 'source.py", line 5 in build' in caught.value.message
    assert caught.value.hint == "read .mmctl/logs/export_net.log"
    assert caught.value.exit_code == 3
    assert snapshot(space.models) == before


def test_an_interrupted_export_takes_its_child_along(workspace: Path) -> None:
    mark = workspace / ".mmctl" / "child.pid"
    space = write_model(workspace, "net", YAML, source_py=SLEEPER)
    before = snapshot(space.models)
    mmctl = subprocess.Popen(
        [sys.executable, "-m", "mmctl", "-C", str(workspace), "export", "net"],
        stderr=subprocess.PIPE,
        text=True,
    )
    child = int(_wait_for(mark))
    mmctl.send_signal(signal.SIGTERM)
    _, said = mmctl.communicate(timeout=20)
    assert mmctl.returncode == 130
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert snapshot(space.models) == before


def _wait_for(file: Path) -> str:
    for _ in range(600):
        if file.is_file() and (text := file.read_text()):
            return text
        time.sleep(0.1)
    raise AssertionError(f"{file} did not come")


def test_the_served_file_answers_as_the_module(export_here: ExportHere, workspace: Path) -> None:
    import onnxruntime

    export_here(YAML, source_py=MODULE.format(forward="torch.relu(x) * 3"))
    path = workspace / "out" / "model.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.array([[1, -1, 2, -2]], dtype=np.float32)
    assert session.run(["y"], {"x": x})[0].tolist() == [[3, 0, 6, 0]]
