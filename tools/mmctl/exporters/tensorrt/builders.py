"""What makes an engine: TensorRT in this process, `trtexec`, or a container of the release."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mmctl.errors import WorldError
from mmctl.exporters.tensorrt.arguments import trtexec_argv
from mmctl.exporters.tensorrt.container import TRTEXEC, container_argv
from mmctl.exporters.tensorrt.entry import BuilderName
from mmctl.exporters.tensorrt.parsing import refusal
from mmctl.exporters.tensorrt.spec import PLAN, BuildSpec
from mmctl.files import write_bytes, writing_to

LOG = "build.log"
MEBIBYTE = 1 << 20


class EngineBuilder(Protocol):
    """A way to make an engine; `title` names it for people."""

    @property
    def title(self) -> str: ...

    def build(self, spec: BuildSpec, folder: Path) -> None:
        """Make `folder/model.plan` from the ONNX file in `folder`.

        Raises InputError when TensorRT refuses the file, WorldError when it cannot work here.
        """


@dataclass(frozen=True, slots=True)
class InProcess:
    """`trt` is the module `tensorrt`, or one of its shape."""

    trt: Any

    @property
    def title(self) -> str:
        return f"TensorRT {self.trt.__version__} in this process"

    def build(self, spec: BuildSpec, folder: Path) -> None:
        log: list[str] = []
        builder = self._builder(logger := _logger_of(self.trt, log))
        typed = 1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(typed)
        parser = self.trt.OnnxParser(network, logger)
        if not parser.parse_from_file(str(folder / spec.onnx)):
            errors = [parser.get_error(index).desc() for index in range(parser.num_errors)]
            raise refusal(spec.onnx, [*log, *errors])
        plan = builder.build_serialized_network(network, self._config(builder, spec, log))
        if plan is None:
            raise refusal(spec.onnx, log)
        write_bytes(folder / PLAN, bytes(plan))

    def _builder(self, logger: Any) -> Any:
        try:
            return self.trt.Builder(logger)
        except TypeError as error:  # what the bindings make of a null pointer
            raise WorldError(
                "TensorRT finds no GPU driver", hint="run it where `nvidia-smi` works"
            ) from error

    def _config(self, builder: Any, spec: BuildSpec, log: Sequence[str]) -> Any:
        config = builder.create_builder_config()
        workspace = self.trt.MemoryPoolType.WORKSPACE
        config.set_memory_pool_limit(workspace, spec.workspace_mb * MEBIBYTE)
        if spec.profiles:
            profile = builder.create_optimization_profile()
            for one in spec.profiles:
                profile.set_shape(one.input, one.min, one.opt, one.max)
            if config.add_optimization_profile(profile) < 0:
                raise refusal(spec.onnx, log)
        return config


@dataclass(frozen=True, slots=True)
class Trtexec:
    """NVIDIA's program beside a TensorRT that is installed here."""

    program: str

    @property
    def title(self) -> str:
        return self.program

    def build(self, spec: BuildSpec, folder: Path) -> None:
        _run(trtexec_argv(spec, self.program, str(folder)), spec, folder)


@dataclass(frozen=True, slots=True)
class Container:
    """`trtexec` in the image of the release that serves; `engine` is docker or podman."""

    engine: str

    @property
    def title(self) -> str:
        return f"a container, by {self.engine}"

    def build(self, spec: BuildSpec, folder: Path) -> None:
        argv = container_argv(spec, str(folder), engine=self.engine, user=own_user())
        _run(argv, spec, folder)


def own_user() -> str:
    """So that what a container writes belongs to who runs it."""
    return f"{os.getuid()}:{os.getgid()}"


def find_builder(name: BuilderName) -> EngineBuilder:
    """The named builder, or the first that is here. Raises WorldError when there is none."""
    wanted = BUILDERS if name == "auto" else {name: BUILDERS[name]}
    for find in wanted.values():
        if (found := find()) is not None:
            return found
    raise WorldError(
        f"this machine has nothing to build engines with: {', '.join(wanted)}",
        hint="install docker, or TensorRT of the version that serves",
    )


def _container() -> EngineBuilder | None:
    engine = shutil.which("docker") or shutil.which("podman")
    return Container(engine) if engine else None


def _trtexec() -> EngineBuilder | None:
    program = shutil.which("trtexec") or shutil.which(TRTEXEC)
    return Trtexec(program) if program else None


def _in_process() -> EngineBuilder | None:
    try:
        return InProcess(importlib.import_module("tensorrt"))
    except ImportError:
        return None


BUILDERS: dict[BuilderName, Callable[[], EngineBuilder | None]] = {
    "container": _container,
    "trtexec": _trtexec,
    "inprocess": _in_process,
}
"""In the order of preference: a container has the server's TensorRT by nature."""


def _logger_of(trt: Any, log: list[str]) -> Any:
    """TensorRT tells the reason of a failure to its logger alone."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def log(self, severity: Any, message: str) -> None:
            if int(severity) <= int(trt.ILogger.Severity.ERROR):
                log.append(message)

    return Logger()


def _run(argv: Sequence[str], spec: BuildSpec, folder: Path) -> None:
    log = folder / LOG
    plan = folder / PLAN
    with writing_to(log):
        plan.unlink(missing_ok=True)
        with log.open("wb") as output:
            code = _code_of(argv, output)
    if code == 0 and plan.is_file():
        return
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "[E]" in line]
    if errors:
        raise refusal(spec.onnx, errors)
    last = f": {lines[-1]}" if lines else ""
    raise WorldError(f"{argv[0]} ended with exit code {code} and made no engine{last}")


def _code_of(argv: Sequence[str], output: Any) -> int:
    """The exit code; the program never outlives this call."""
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
    )
    try:
        return child.wait()
    finally:
        child.kill()
        child.wait()
