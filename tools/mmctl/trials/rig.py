"""A private server for a drill: a pipeline whose nodes can be made to fail."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmctl.client import Client
from mmctl.errors import InferenceError, WorldError
from mmctl.files import read_text, render_json, write_text
from mmctl.pipeline.graph import Form, Graph, Node
from mmctl.server.process import EmbeddedTriton
from mmctl.serving.session import prepare, private_tree, private_triton
from mmctl.tensors import Array
from mmctl.trials.answers import Outputs
from mmctl.trials.promises import Promise, compared_outputs
from mmctl.trials.rewiring import (
    Callee,
    callee_in_plan,
    config_with_stub,
    constants_for,
    plan_with_stub,
    reference_plan,
    step_of,
)
from mmctl.trials.stubs import CALLS, FAULT, Stub, render_fault, stub_of
from mmctl.triton.config import ModelConfig
from mmctl.triton.pbtxt import parse_config, render_config
from mmctl.triton.repository import CONFIG
from mmctl.workspace import Workspace

HANG_S = 30.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Reply:
    """How a request ended: `outputs`, or `error`; `hung` when nothing came for HANG_S."""

    ms: float
    outputs: Outputs | None = None
    error: str = ""
    hung: bool = False


class Rig:
    """`root` is the served tree of this server alone: nothing in it is written in place, for its
    files are links to those of the workspace.
    """

    def __init__(
        self, graph: Graph, form: Form, root: Path, version: int, server: EmbeddedTriton
    ) -> None:
        self.graph, self.form, self.pipeline = graph, form, graph.name
        self.compared = compared_outputs(graph)
        self._root, self._server = root, server
        self.client = Client(server.grpc)
        config, plan = root / graph.name / CONFIG, root / graph.name / str(version) / "plan.json"
        self._path = plan if form == "bls" else config
        self._text = read_text(self._path)

    def ask(self, inputs: Mapping[str, Array]) -> Reply:
        """Raises WorldError when the server is gone."""
        begin = time.perf_counter()
        outputs, error, hung = None, "", False
        try:
            outputs = self.client.infer(self.pipeline, inputs, timeout_s=HANG_S).outputs
        except InferenceError as problem:
            error = str(problem)
        except WorldError:
            if not self._server.alive:
                raise
            hung = True
        return Reply((time.perf_counter() - begin) * 1000, outputs, error, hung)

    def stand_in(self, node: Node) -> str:
        """Let a stub run the node: it hands on what it is asked, until a fault is set. Returns
        its name.
        """
        name = f"{self.pipeline}__{node.name}__stub"
        callee = self._callee(node)
        config = self._config(callee.model)
        self._put(stub_of(name, config, callee.version))
        self._rewire(self._with_stub(node, name))
        return name

    def declare(self, node: Node, promise: Promise) -> None:
        """Let the pipeline answer as `promise` says for a failure of the node."""
        stubs = constants_for(self.graph, node.name, promise)
        for stub in stubs.values():
            self._put(stub)
        plan = json.loads(self._text)
        changed = reference_plan(plan, self.graph, node.name, promise, stubs)
        self._rewire(render_json(changed))

    def restore(self) -> None:
        """The pipeline as it was."""
        self._rewire(self._text)

    def set_fault(self, stub: str, fault: str, sleep_ms: float = 0) -> None:
        write_text(self._root / stub / FAULT, render_fault(fault, sleep_ms))

    def calls(self, stub: str) -> int:
        """How often a stub was asked until now."""
        path = self._root / stub / CALLS
        return path.stat().st_size if path.exists() else 0

    def _callee(self, node: Node) -> Callee:
        if self.form == "bls":
            return callee_in_plan(json.loads(self._text), node.name)
        step = step_of(self._own_config(), self.graph, node)
        return Callee(step.model, step.version)

    def _with_stub(self, node: Node, stub: str) -> str:
        if self.form == "bls":
            return render_json(plan_with_stub(json.loads(self._text), node.name, stub))
        config = self._own_config()
        return render_config(config_with_stub(config, step_of(config, self.graph, node), stub))

    def _own_config(self) -> ModelConfig:
        return parse_config(self._text, where=str(self._path))

    def _config(self, model: str) -> ModelConfig:
        path = self._root / model / CONFIG
        return parse_config(read_text(path), where=str(path))

    def _put(self, stub: Stub) -> None:
        for path, text in stub.files().items():
            write_text(self._root / stub.name / path, text)
        self._server.load(stub.name)

    def _rewire(self, text: str) -> None:
        if write_text(self._path, text):
            self._server.load(self.pipeline)


@contextmanager
def open_rig(
    workspace: Workspace, pipeline: str, say: Say, check: Callable[[Graph], None]
) -> Iterator[Rig]:
    """Build and serve a pipeline. `check` sees its graph before a server starts."""
    with private_tree(workspace) as root:
        prepared = prepare(workspace, [pipeline], root, say)
        compiled = prepared.built.pipelines[-1].compiled
        check(compiled.graph)
        with private_triton(workspace, prepared, say, reload_dead=False) as server:
            version = prepared.tree.models[pipeline][-1]
            rig = Rig(compiled.graph, compiled.form, root, version, server)
            with rig.client:
                yield rig
