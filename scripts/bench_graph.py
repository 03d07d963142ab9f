"""The graph of `bench_forms` on one Triton: as mmctl makes it in each form, and by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from mmctl.building.build import build
from mmctl.building.served import materialise
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import Runtime, precompile
from mmctl.serving.session import refuse_failures
from mmctl.workspace import Workspace, read_workspace

BASELINES = Path(__file__).resolve().parent / "baselines"
GRAPH = BASELINES / "graph"
FORMS = ("fused", "ensemble", "bls")
GRAPHS = (*FORMS, "hand_ensemble", "hand_bls")
"""Models that answer what the whole graph answers."""

Arrays = Mapping[str, npt.NDArray[Any]]
Say = Callable[[str], None]


@contextmanager
def serving_all(runtime: Runtime, state: Path, say: Say) -> Iterator[EmbeddedTriton]:
    """A private server with every variant, on a tree that is gone after the block."""
    with TemporaryDirectory(prefix="bench-forms-") as folder:
        tree = make_tree(Path(folder), runtime, say)
        with EmbeddedTriton.start(runtime, tree, state=state, private=True, say=say) as server:
            refuse_failures(server)
            yield server


def make_tree(folder: Path, runtime: Runtime, say: Say) -> Path:
    workspace = write_workspace(folder)
    tree = workspace.served("bench")
    materialise(workspace, build(workspace, [], say).models, tree)
    write_by_hand(tree)
    precompile(runtime, [tree])
    return tree


def write_workspace(folder: Path) -> Workspace:
    """The graph three times, each pinned to a form and named after it."""
    (folder / "mmctl.yaml").write_text("targets: {}\n")
    (folder / "model_repository").mkdir()
    text = (GRAPH / "pipeline.yaml").read_text()
    for form in FORMS:
        pinned = text.replace("pipeline: graph\n", f"pipeline: {form}\nform: {form}\n")
        shutil.copytree(GRAPH, folder / "ensembles" / form, ignore=without_caches)
        (folder / "ensembles" / form / "pipeline.yaml").write_text(pinned)
    return read_workspace(folder)


def write_by_hand(tree: Path) -> None:
    """The models of `baselines`, with the functions that are the work of all sides."""
    for config in BASELINES.glob("*/*/config.pbtxt"):
        model = tree / config.parent.name
        shutil.copytree(config.parent, model, ignore=without_caches)
        (model / "1").mkdir(exist_ok=True)  # an ensemble's version folder is empty
        if (model / "1" / "model.py").exists():
            shutil.copyfile(GRAPH / "steps.py", model / "1" / "steps.py")


def requests(count: int) -> list[Arrays]:
    """Requests of one row: texts of a few to 20 words, every eighth with a listed one; images."""
    draw = np.random.default_rng(0)
    words = ["we", "took", "the", "children", "to", "a", "pärk", "and", "had", "lovely", "days"]
    made: list[Arrays] = []
    for number in range(count):
        text = " ".join(draw.choice(words, draw.integers(3, 21))) + " bad7" * (number % 8 == 0)
        image = draw.standard_normal((1, 3, 32, 32)).astype(np.float32)
        made.append({"text": np.array([[text.encode()]], np.object_), "image": image})
    return made


def stacked(rows: list[Arrays]) -> Arrays:
    """One request of many rows."""
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def ask(client: Any, model: str, inputs: Arrays) -> npt.NDArray[np.float32]:
    """The scores [batch, 1] that a model answers; `client` is tritonclient's for gRPC."""
    from tritonclient.grpc import InferInput
    from tritonclient.utils import np_to_triton_dtype

    sent = []
    for name, array in inputs.items():
        sent.append(InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        sent[-1].set_data_from_numpy(array)
    scores: npt.NDArray[np.float32] = client.infer(model, sent).as_numpy("score")
    return scores


def without_caches(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
