"""What serving costs: models through the embedded Triton against the same files in process.

    scripts/bench_serving                      every section
    scripts/bench_serving minilm --pairs 20    one of them, longer
    scripts/bench_serving --json > now.json    to be compared later

Sections: `identity`, a model of no work; `minilm` and `nsfw`, ONNX models; `mixed`, texts of mixed
lengths through `toxicity`, for the batches that MiniLM gets; `content_moderation`, an ensemble.

The sides of a pair take turns. CPU of the server is that of its whole process tree; the client is
another process and not counted. The in-process side has the server's threads, which never spin,
and runs the mean batch that the server formed; for an ensemble it is the sum over its models.
Ratios are in process / served for CPU and served / in process for throughput: 1 means that serving
costs nothing. Intervals are of 95 % or more from 6 pairs on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench_load import Load, serialise
from bench_measure import (
    Estimate,
    Table,
    circumstances,
    estimate,
    in_process,
    interleaved,
    parser_of,
    say,
    tree_cpu_ms,
)
from bench_own import Arrays, OwnModels, Side

from mmctl.client.samples import find_sample
from mmctl.server.process import EmbeddedTriton
from mmctl.serving.session import prepare, refuse_failures
from mmctl.workspace import Workspace, read_workspace

ROOT = Path(__file__).resolve().parent.parent
TOKENS = 16
IDENTITY = """
platform: "onnxruntime_onnx"
max_batch_size: 16
input { name: "x" data_type: TYPE_FP32 dims: [4] }
output { name: "y" data_type: TYPE_FP32 dims: [4] }
instance_group { kind: KIND_CPU count: 1 }
dynamic_batching { }
"""


# ---------------------------------------------------------------- what is sent


@dataclass(frozen=True, slots=True)
class Section:
    """`batch_of` is the model whose mean batch is shown; a `paired` one has an in-process side."""

    model: str
    requests: Sequence[Arrays]
    batch_of: str
    paired: bool = True


def sections(workspace: Workspace) -> dict[str, Section]:
    draw = np.random.default_rng(0)
    ids = draw.integers(1000, 20000, (1, TOKENS))
    tokens = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    pixels = draw.standard_normal((1, 224, 224, 3)).astype(np.float32)
    post = find_sample(workspace.pipelines / "content_moderation" / "samples", "walk")
    return {
        "identity": Section("identity", [{"x": np.zeros((1, 4), np.float32)}], "identity", False),
        "minilm": Section("minilm", [tokens], "minilm"),
        "nsfw": Section("nsfw", [{"pixels": pixels}], "nsfw"),
        "mixed": Section("toxicity", [{"text": text} for text in mixed_texts()], "minilm", False),
        "content_moderation": Section(
            "content_moderation",
            [{name: one_value(value) for name, value in post.inputs.items()}],
            "nsfw",
        ),
    }


def one_value(value: object) -> Any:
    return np.array([[value.encode() if isinstance(value, str) else value]], np.object_)


def mixed_texts() -> list[Any]:
    """64 texts as long as what customers write: of tokens, 3 in 4 fit 16 and most others 32."""
    draw = np.random.default_rng(0)
    words = ["we", "took", "the", "children", "to", "a", "park", "and", "had", "lovely", "days"]
    counts = draw.lognormal(np.log(10), 0.5, 64).clip(1, 60).astype(int)
    return [one_value(" ".join(draw.choice(words, count))) for count in counts]


# ---------------------------------------------------------------- the two sides


@dataclass(frozen=True, slots=True)
class Served:
    """`batches`: the mean batch of every model that the requests reached."""

    cpu_ms: float
    per_s: float
    p50_ms: float
    batches: dict[str, float]


class Bench:
    """A running server and the same models in this process."""

    def __init__(self, server: EmbeddedTriton, tree: Path, load: Load, seconds: float) -> None:
        from tritonclient.grpc import InferenceServerClient

        self._load, self._seconds, self._pid = load, seconds, server.info.pid
        self._client = InferenceServerClient(server.grpc)
        self.release = server.info.release
        self.own = OwnModels(tree, self._config, len(os.sched_getaffinity(0)))

    def serve(self, requests: Sequence[bytes], in_flight: int) -> Served:
        before, cpu = self._counts(), tree_cpu_ms(self._pid)
        result = self._load.run(requests, in_flight, self._seconds)
        cpu, after = tree_cpu_ms(self._pid) - cpu, self._counts()
        batches = {
            name: (after[name][0] - rows) / (after[name][1] - runs)
            for name, (rows, runs) in before.items()
            if after[name][1] > runs
        }
        per_s = result.requests / result.seconds
        return Served(cpu / result.requests, per_s, result.p50_ms, batches)

    def compute(self, calls: Sequence[tuple[str, Arrays]], served: Served) -> Side:
        """What the calls cost in process, each at the mean batch that the server formed of it."""
        share = self._seconds / len(calls)
        sides = [self.own.measure(name, row, served.batches[name], share) for name, row in calls]
        return Side(sum(side.cpu_ms for side in sides), 1 / sum(1 / side.per_s for side in sides))

    def _config(self, model: str) -> dict[str, Any]:
        config: dict[str, Any] = self._client.get_model_config(model, as_json=True)["config"]
        return config

    def _counts(self) -> dict[str, tuple[int, int]]:
        """(rows, executions) so far of every model."""
        stats = self._client.get_inference_statistics().model_stats
        return {entry.name: (entry.inference_count, entry.execution_count) for entry in stats}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; a section without an in-process side has no ratios."""

    section: str
    in_flight: int
    batch: float
    per_s: float
    p50_ms: float
    cpu_ms: Estimate
    cpu_ratio: Estimate | None
    throughput_ratio: Estimate | None

    def __str__(self) -> str:
        return (
            f"{self.section:<18} {self.in_flight:>9} {self.batch:>6.2f} {self.per_s:>7.0f} "
            f"{self.p50_ms:>8.2f} {self.cpu_ms!s:>22} {self.cpu_ratio or ''!s:>22} "
            f"{self.throughput_ratio or ''!s:>22}"
        ).rstrip()


HEADER = (
    f"{'section':<18} {'in flight':>9} {'batch':>6} {'per s':>7} {'p50 ms':>8} "
    f"{'CPU ms':>22} {'CPU ratio':>22} {'throughput ratio':>22}"
)


def measure(bench: Bench, name: str, section: Section, in_flight: int, pairs: int) -> Row:
    requests = [serialise(section.model, request) for request in section.requests]
    served = [bench.serve(requests, in_flight)]  # warms up, and tells the batches for a first pair

    def serve() -> Served:
        served.append(bench.serve(requests, in_flight))
        return served[-1]

    if not section.paired:
        return row(name, section, in_flight, [(serve(), None) for _ in range(pairs)])
    calls = bench.own.calls(section.model, section.requests[0])
    sides = interleaved(pairs, serve, lambda: bench.compute(calls, served[-1]))
    return row(name, section, in_flight, list(sides))


def row(
    name: str, section: Section, in_flight: int, sides: Sequence[tuple[Served, Side | None]]
) -> Row:
    served = [through for through, _ in sides]
    pairs = [(through, own) for through, own in sides if own]
    cpu_ratios = [own.cpu_ms / through.cpu_ms for through, own in pairs]
    throughput_ratios = [through.per_s / own.per_s for through, own in pairs]
    return Row(
        section=name,
        in_flight=in_flight,
        batch=float(np.median([side.batches[section.batch_of] for side in served])),
        per_s=float(np.median([side.per_s for side in served])),
        p50_ms=float(np.median([side.p50_ms for side in served])),
        cpu_ms=estimate([side.cpu_ms for side in served]),
        cpu_ratio=estimate(cpu_ratios) if pairs else None,
        throughput_ratio=estimate(throughput_ratios) if pairs else None,
    )


# ---------------------------------------------------------------- the server


@contextmanager
def serving(workspace: Workspace, seconds: float) -> Iterator[Bench]:
    """The workspace's own models on a private server, and the identity beside them."""
    tree = workspace.served(f"bench-{os.getpid()}")
    try:
        prepared = prepare(workspace, ["content_moderation"], tree, say)
        write_identity(tree / "identity")
        with (
            EmbeddedTriton.start(
                prepared.runtime, tree, state=workspace.state, private=True, say=say
            ) as server,
            Load(server.grpc) as load,
        ):
            refuse_failures(server)
            yield Bench(server, tree, load, seconds)
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def write_identity(folder: Path) -> None:
    from onnx import TensorProto, helper, save

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", [x], [y])
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(IDENTITY)
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "1" / "model.onnx")


def arguments(known: Sequence[str]) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("sections", nargs="*", default=known, metavar="SECTION")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each side of a pair")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 8, 16])
    asked = parser.parse_args()
    if unknown := set(asked.sections) - set(known):
        parser.error(f"no section `{unknown.pop()}`; there are {', '.join(known)}")
    return asked


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends too
    workspace = read_workspace(ROOT)
    known = sections(workspace)
    asked = arguments(list(known))
    with serving(workspace, asked.seconds) as bench:
        versions = f"Triton {bench.release}; {in_process('onnxruntime', 'numpy')}"
        around = circumstances(versions)
        table: Table[Row] = Table(around, HEADER, json=asked.json)
        for name in asked.sections:
            for in_flight in asked.in_flight:
                table.add(measure(bench, name, known[name], in_flight, asked.pairs))
    table.end(pairs=asked.pairs, seconds=asked.seconds)


if __name__ == "__main__":
    main()
