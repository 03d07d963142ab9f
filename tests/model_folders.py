"""Model folders for tests: a workspace, a model.yaml and the files beside it."""

from __future__ import annotations

import shutil
import zipfile
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any

from mmctl.exporters.base import Evidence, Exported, Task
from mmctl.exporters.lowering import Lowering
from mmctl.exporters.spec import read_model
from mmctl.workspace import Workspace, read_workspace

PYTHON_MODEL = """\
class TritonPythonModel:
    def execute(self, requests):
        return []
"""

PYTHON_YAML = """\
source: {python: model.py}
inputs: {text: string}
outputs: {label: string, scores: "fp32[3]"}
batching: {max_batch: 8}
"""


def write_model(root: Path, name: str, yaml: str, **files: str | bytes) -> Workspace:
    """`files` are named without their dot: `model_py="..."` is model.py."""
    folder = root / "model_repository" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(dedent(yaml))
    for key, content in files.items():
        stem, _, suffix = key.rpartition("_")
        data = content if isinstance(content, bytes) else dedent(content).encode()
        (folder / f"{stem}.{suffix}").write_bytes(data)
    return read_workspace(root)


def write_python_model(root: Path, name: str = "echo", yaml: str = PYTHON_YAML) -> Workspace:
    return write_model(root, name, yaml, model_py=PYTHON_MODEL)


def export_here(space: Workspace, name: str, out: Path) -> Exported:
    """What the child process of an export does, in this one."""
    model = read_model(space, name)
    file = model.file
    out.mkdir(exist_ok=True)
    return file.source.export(
        Task(
            place=model.place,
            located=file.source.locate(model.place, lambda _line: None),
            out=out,
            batched=file.batched,
            rename=file.rename,
            tolerance=file.verify.tolerance,
            declared=file.declared,
        )
    )


def write_samples(root: Path, module: str, code: str) -> None:
    """calibration/<module>.py, with numpy as np."""
    folder = root / "calibration"
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text("import numpy as np\n" + dedent(code))


def lower_here(space: Workspace, name: str, fp32: bytes, out: Path, **more: Any) -> list[Evidence]:
    """What the child process of an export does after the FP32 file is proven, in this one."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "model.onnx").write_bytes(fp32)
    how = {"known": {}, "force": False, **more}
    return Lowering(read_model(space, name), out, **how).run()


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file under `folder` with its modification time and content."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_wheel(folder: Path, package: str, files: dict[str, bytes]) -> str:
    """A wheel of `package` 1.0 with these files in it; returns its line for packages.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{package}-1.0.dist-info"
    content = {
        f"{package}/__init__.py": b"raise RuntimeError('model packages are not imported')\n",
        **{f"{package}/{path}": data for path, data in files.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*content, f"{info}/RECORD"))
    wheel = folder / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", record)
    return f"{package}==1.0 --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}"
