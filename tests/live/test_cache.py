"""The client's cache before a real Triton: every request gets its own answer, and the new one after
a reload; what is asked for at the same time is computed once; a store may come and go.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from cache_servers import running_store
from servers import Serve

import mmctl
from mmctl import AsyncClient, Cache, Client, EmbeddedTriton
from mmctl.cache.epochs import move_epoch
from mmctl.client.core import STALE_S
from mmctl.inference import InferResult
from mmctl.server.store import EmbeddedStore

pytestmark = [pytest.mark.live, pytest.mark.alone]

SAYS = """
import json, time
import numpy as np
import triton_python_backend_utils as pb

CONTENT = "{content}"

class TritonPythonModel:
    \"\"\"Says what it was asked, what it is, and for the how manyeth time it runs.\"\"\"

    def initialize(self, args):
        self.version, self.runs = args["model_version"], 0
        config = json.loads(args["model_config"])
        self.batches = config["max_batch_size"] > 0
        self.outputs = [output["name"] for output in config["output"]]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.runs += 1
        parameters = json.loads(request.parameters() or "{{}}")
        time.sleep(parameters.get("wait_ms", 0) / 1000)
        inputs = {{tensor.name(): tensor.as_numpy() for tensor in request.inputs()}}
        said = {{
            "inputs": {{
                name: [array.dtype.str, array.shape, array.astype(str).ravel().tolist()]
                for name, array in inputs.items()
            }},
            "scale": parameters.get("scale", 1),
            "content": CONTENT,
            "version": self.version,
        }}
        rows = (len(next(iter(inputs.values()))), 1) if self.batches else (1,)
        given = {{
            "said": np.full(rows, json.dumps(said), dtype=object),
            "run": np.full(rows, self.runs, dtype="int64"),
        }}
        return pb.InferenceResponse([pb.Tensor(name, given[name]) for name in self.outputs])
"""
PYTHON = 'backend: "python"\ninstance_group { kind: KIND_CPU count: 1 }'
ENSEMBLE = """platform: "ensemble"
ensemble_scheduling { step { model_name: "leaf" model_version: -1
  input_map { key: "x" value: "x" }
  output_map { key: "said" value: "said" } output_map { key: "run" value: "run" } } }
"""
NUMBERS = ("x TYPE_FP32 [ -1, -1 ]",)
OUTPUTS = ("said TYPE_STRING [ 1 ]", "run TYPE_INT64 [ 1 ]")


def write_model(
    repository: Path,
    name: str,
    *more: str,
    inputs: tuple[str, ...] = NUMBERS,
    outputs: tuple[str, ...] = OUTPUTS,
    content: Mapping[int, str] | None = None,
    batch: int = 0,
    digest: str = "",
    backend: str = PYTHON,
) -> None:
    """`content` is by version, `digest` the parameter that mmctl writes into a served config.

    Python takes code of one length, written within one second, for the same: texts differ in that.
    """
    folder = repository / name
    for version, text in (content or {1: "old"}).items():
        code = folder / str(version) / "model.py"
        code.parent.mkdir(parents=True, exist_ok=True)
        if backend == PYTHON:
            code.write_text(SAYS.format(content=text))
    parts = [backend, f"max_batch_size: {batch}", *more]
    if digest:
        parts.append(_parameter("mmctl.digest", digest))
    for field, rows in {"input": inputs, "output": outputs}.items():
        for tensor, kind, rest in (row.split(maxsplit=2) for row in rows):
            dims, _, options = rest.partition("]")
            parts.append(
                f'{field} {{ name: "{tensor}" data_type: {kind} dims: {dims}] {options} }}'
            )
    (folder / "config.pbtxt").write_text("\n".join(parts))


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'


TEXTS = tuple(f"{name} TYPE_STRING [ -1 ] optional: true" for name in ("t", "tu"))
CACHED = "response_cache { enable: true }"
BOTH_VERSIONS = "version_policy { specific { versions: [ 1, 2 ] } }"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository")


@pytest.fixture(scope="module")
def triton(serve: Serve, repository: Path) -> EmbeddedTriton:
    write_model(repository, "plain", BOTH_VERSIONS, content={1: "one", 2: "two"})
    write_model(repository, "texts", inputs=TEXTS)
    write_model(repository, "rows", inputs=("x TYPE_FP32 [ -1 ]",), batch=8)
    write_model(repository, "moving", digest="1:old")
    write_model(repository, "leaf", digest="1:old")
    write_model(repository, "outer", backend=ENSEMBLE, digest="1:old")
    write_model(
        repository,
        "allowed",
        CACHED,
        inputs=("x TYPE_FP32 [ 4 ]",),
        outputs=OUTPUTS[:1],
        digest="1:old",
    )
    write_model(repository, "foreign", CACHED)
    return serve(repository)


@dataclass(frozen=True)
class Asker:
    """A client of a cache. It may rely for a second on what it knows of a model."""

    client: Client

    def __call__(self, model: str, inputs: object, **options: Any) -> tuple[str, Any]:
        """The level that answered, and what the model said or, without it, its run."""
        answer = self.client.infer(model, inputs, **options)  # type: ignore[arg-type]
        return answer.cache.level, said_in(answer)


def said_in(answer: InferResult) -> Any:
    if "said" in answer.outputs:
        return json.loads(answer.outputs["said"].ravel()[0])
    return answer.outputs["run"].item()


@pytest.fixture
def askers(triton: EmbeddedTriton) -> Iterator[Callable[[], Asker]]:
    """Makes clients of one cache; a new one knows nothing of the models yet."""
    cache = Cache(tenant="shop")
    with ExitStack() as stack:
        yield lambda: Asker(stack.enter_context(Client(triton.grpc, cache=cache)))


@pytest.fixture
def ask(askers: Callable[[], Asker]) -> Asker:
    return askers()


# ---------------------------------------------------------------- what tells two requests apart


def x(*rows: Any) -> dict[str, Any]:
    return {"x": np.array(rows, dtype="f4")}


def t(*texts: str) -> dict[str, Any]:
    return {"t": list(texts)}


@dataclass(frozen=True)
class Request:
    model: str
    inputs: Mapping[str, Any]
    options: Mapping[str, Any]


def request(model: str, inputs: Mapping[str, Any], **options: Any) -> Request:
    return Request(model, inputs, options)


FLAT, SQUARE = x([1, 2, 3, 4]), x([1, 2], [3, 4])
PROBES = {
    "shape": (request("plain", FLAT), request("plain", SQUARE)),
    "names of inputs": (request("texts", t("a")), request("texts", {"tu": ["a"]})),
    "where one input ends": (
        request("texts", {"t": ["a"], "tu": ["bc"]}),
        request("texts", {"t": ["ab"], "tu": ["c"]}),
    ),
    "where one text ends": (request("texts", t("ab", "c")), request("texts", t("a", "bc"))),
    "a parameter": (
        request("plain", FLAT, parameters={"scale": 2}),
        request("plain", FLAT, parameters={"scale": 3}),
    ),
    "version": (request("plain", FLAT, version="1"), request("plain", FLAT, version="2")),
    "batch": (request("rows", x([1], [2])), request("rows", x([1, 2]))),
    "-0.0": (request("rows", x([0.0])), request("rows", x([-0.0]))),
}


@pytest.mark.parametrize("pair", PROBES.values(), ids=PROBES)
def test_each_request_gets_its_own_answer(ask: Asker, pair: tuple[Request, Request]) -> None:
    def asked(one: Request) -> tuple[str, Any]:
        return ask(one.model, one.inputs, **one.options)

    first, second = asked(pair[0]), asked(pair[1])
    assert (first[0], second[0]) == ("none", "none")
    for one, (_, said) in zip(pair, (first, second), strict=True):
        shapes = {n: list(np.shape(v)) for n, v in one.inputs.items()}
        assert {n: shape for n, (_, shape, _) in said["inputs"].items()} == shapes
        assert said["scale"] == one.options.get("parameters", {}).get("scale", 1)
        assert said["version"] == one.options.get("version", said["version"])
    assert first[1] != second[1]
    assert [asked(pair[0]), asked(pair[1])] == [("exact", first[1]), ("exact", second[1])]


def test_each_choice_of_outputs_gets_its_own_answer(ask: Asker) -> None:
    for outputs in (["said"], ["run"], ["said", "run"], []):
        for level in ("none", "exact"):
            answer = ask.client.infer("plain", x([5, 5]), outputs=outputs)
            assert set(answer.outputs) == set(outputs or ["said", "run"])
            assert answer.cache.level == level or set(outputs) == {"run", "said"}


def test_each_tenant_gets_its_own_answer(ask: Asker) -> None:
    def run(tenant: str) -> tuple[str, int]:
        return ask("plain", x([6]), tenant=tenant, outputs=["run"])

    one, other = run("one"), run("other")
    assert (one[0], other[0]) == ("none", "none")
    assert one[1] != other[1]
    assert [run("one"), run("other")] == [("exact", one[1]), ("exact", other[1])]


def test_no_store_asks_the_model_and_leaves_what_is_kept(ask: Asker) -> None:
    kept = ask("plain", x([7]), outputs=["run"])[1]
    level, run = ask("plain", x([7]), outputs=["run"], no_store=True)
    assert (level, run) == ("bypass", kept + 1)
    assert ask("plain", x([7]), outputs=["run"]) == ("exact", kept)


# ---------------------------------------------------------------- reloads


@pytest.fixture
def moving(triton: EmbeddedTriton, repository: Path) -> Iterator[Callable[..., None]]:
    """Reloads `moving` with other content, and in the end as it was."""

    def move(*more: str, **options: Any) -> None:
        write_model(repository, "moving", *more, **options)
        triton.load("moving")

    yield move
    move(digest="1:old")


def test_the_same_bytes_of_another_type_are_another_request(
    askers: Callable[[], Asker], moving: Callable[..., None]
) -> None:
    floats = np.array([[1.5, 2.5]], dtype="f4")
    assert askers()("moving", {"x": floats})[1]["inputs"]["x"][0] == "<f4"
    moving(digest="1:old", inputs=("x TYPE_INT32 [ -1, -1 ]",))
    level, said = askers()("moving", {"x": floats.view("i4")})
    assert (level, said["inputs"]["x"][0]) == ("none", "<i4")


def test_a_model_of_other_precision_answers_for_itself(
    askers: Callable[[], Asker], moving: Callable[..., None]
) -> None:
    moving()  # unproven: it has no digest that would tell
    ask = askers()
    runs = [ask("moving", x([1]), outputs=["run"]) for _ in range(2)]
    assert runs == [("none", 1), ("exact", 1)]
    moving(
        "optimization { execution_accelerators { gpu_execution_accelerator { "
        'name: "tensorrt" parameters { key: "precision_mode" value: "FP16" } } } }'
    )
    assert askers()("moving", x([1]), outputs=["run"])[0] == "none"


def test_back_to_what_it_was_the_old_answers_are_right_and_no_others(
    askers: Callable[[], Asker], moving: Callable[..., None]
) -> None:
    """Also those that were asked for while nobody had seen yet that the model had changed."""
    unaware = askers()
    assert unaware("moving", x([1]))[1]["content"] == "old"
    moving(content={1: "newer"}, digest="1:newer")
    unaware("moving", x([2]))
    assert askers()("moving", x([1]))[1]["content"] == "newer"
    moving(digest="1:old")
    ask = askers()
    assert [ask("moving", x([n]))[1]["content"] for n in (1, 2)] == ["old", "old"]


def test_an_ensemble_answers_anew_when_what_it_calls_has_changed(
    triton: EmbeddedTriton, repository: Path, askers: Callable[[], Asker]
) -> None:
    ask = askers()
    assert [ask("outer", x([1]))[1]["content"] for _ in range(2)] == ["old", "old"]
    write_model(repository, "leaf", content={1: "newer"}, digest="1:newer")
    triton.load("leaf")
    write_model(repository, "outer", backend=ENSEMBLE, digest="1:newer")
    triton.load("outer")
    level, said = askers()("outer", x([1]))
    assert (level, said["content"]) == ("none", "newer")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    with running_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with a store"])
def test_nobody_gets_an_old_answer_for_longer_than_a_second(
    triton: EmbeddedTriton, store: EmbeddedStore, moving: Callable[..., None], shared: bool
) -> None:
    """Two caches as of two processes are asked all the time, through a deploy and its rollback."""
    url = store.url if shared else None
    contents = ["old", "newer", "old"]
    moving(digest="1:old")
    reloaded: list[float] = []
    seen: list[list[tuple[float, str]]] = [[], []]
    ended = threading.Event()

    def watch(seen: list[tuple[float, str]]) -> None:
        with Cache(tenant="shop", store=url) as cache, Client(triton.grpc, cache=cache) as client:
            while not ended.is_set():
                asked = time.monotonic()
                said = said_in(client.infer("moving", x([8])))
                seen.append((asked, said["content"]))
                time.sleep(0.01)

    with ThreadPoolExecutor(2) as pool:
        watchers = [pool.submit(watch, one) for one in seen]
        try:
            for content in contents[1:]:
                time.sleep(STALE_S)
                moving(content={1: content}, digest=f"1:{content}")
                reloaded.append(time.monotonic())
                if shared:
                    move_epoch(store.url, ["moving"])
            time.sleep(STALE_S + 0.3)
        finally:
            ended.set()
        for watcher in watchers:
            watcher.result()
    for one in seen:
        assert [content for content, _ in _runs(one)] == contents
        late = [at for at, content in one if content == "newer"]
        assert late[0] - reloaded[0] < STALE_S
        assert late[-1] - reloaded[1] < STALE_S


def _runs(seen: list[tuple[float, str]]) -> list[tuple[str, float]]:
    """Each content when it is first seen after another."""
    told: list[tuple[str, float]] = []
    for at, content in seen:
        if not told or told[-1][0] != content:
            told.append((content, at))
    return told


# ---------------------------------------------------------------- Triton's own cache


def test_with_tritons_cache_on_where_mmctl_allows_it_a_new_version_answers(
    triton: EmbeddedTriton, repository: Path, askers: Callable[[], Asker]
) -> None:
    ask = askers()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for outputs in ([], ["said"]):
            for _ in range(2):
                said = ask("allowed", x(1, 2, 3, 4), outputs=outputs, no_store=True)[1]
                assert (said["content"], said["version"]) == ("old", "1")
    write_model(
        repository,
        "allowed",
        CACHED,
        "version_policy { specific { versions: [ 2 ] } }",
        inputs=("x TYPE_FP32 [ 4 ]",),
        outputs=OUTPUTS[:1],
        content={2: "newer"},
        digest="2:newer",
    )
    triton.load("allowed")
    ask = askers()
    for no_store in (True, False):
        said = ask("allowed", x(1, 2, 3, 4), no_store=no_store)[1]
        assert (said["content"], said["version"]) == ("newer", "2")


def test_a_foreign_model_whose_cache_mixes_up_is_warned_of_once_and_found_by_check(
    ask: Asker, repository: Path, tmp_path: Path
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for rows in (FLAT, SQUARE):
            ask("foreign", rows)
    assert [one.category for one in told] == [RuntimeWarning]
    assert "model `foreign`: Triton's own response cache" in str(told[0].message)
    shutil.copytree(repository / "foreign", tmp_path / "foreign")
    found = [finding for finding in mmctl.check(tmp_path) if finding.code == "S002"]
    assert len(found) == 2  # free axes, two outputs


# ---------------------------------------------------------------- many at once


SLOW = {"wait_ms": 300}


def test_threads_and_tasks_that_want_the_same_get_one_computation(
    triton: EmbeddedTriton,
) -> None:
    cache = Cache(tenant="shop")

    def in_thread(client: Client) -> int:
        answer = client.infer("plain", x([9]), parameters=SLOW)
        return int(answer.outputs["run"].item())

    async def in_tasks() -> list[int]:
        async with AsyncClient(triton.grpc, cache=cache) as client:
            several = [client.infer("plain", x([9]), parameters=SLOW) for _ in range(50)]
            return [int(answer.outputs["run"].item()) for answer in await asyncio.gather(*several)]

    with Client(triton.grpc, cache=cache) as client, ThreadPoolExecutor(21) as pool:
        threads = [pool.submit(in_thread, client) for _ in range(20)]
        tasks = pool.submit(asyncio.run, in_tasks())
        runs = {*(thread.result() for thread in threads), *tasks.result()}
    assert len(runs) == 1
    counts = cache.statistics()["plain"]
    assert counts["none"]["filled"] == 1
    assert counts["none"]["coalesced"] == 69


def test_who_waits_gets_an_answer_when_who_computes_is_cancelled(triton: EmbeddedTriton) -> None:
    async def levels() -> list[str]:
        async with AsyncClient(triton.grpc, cache=Cache(tenant="shop")) as client:

            def asked() -> asyncio.Task[InferResult]:
                steps = client.infer("plain", x([10]), parameters=SLOW, timeout_s=10)
                return asyncio.create_task(steps)

            await client.infer("plain", x([11]))
            leader, others = asked(), []
            await asyncio.sleep(0.05)
            others = [asked() for _ in range(5)]
            await asyncio.sleep(0.05)
            leader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leader
            return [answer.cache.level for answer in await asyncio.gather(*others)]

    assert asyncio.run(levels()) == ["none"] * 5


# ---------------------------------------------------------------- the store


def test_a_store_that_stops_and_comes_back_fails_no_request(
    triton: EmbeddedTriton, tmp_path: Path
) -> None:
    def asked(client: Client, number: int) -> str:
        answer = client.infer("plain", x([number]))
        assert said_in(answer)["inputs"]["x"][2] == [str(float(number))]
        return answer.cache.level

    with running_store(tmp_path) as running:
        place = urlsplit(running.url)
        one, other = (Cache(tenant="shop", store=running.url) for _ in range(2))
        with Client(triton.grpc, cache=one) as first, Client(triton.grpc, cache=other) as second:
            assert [asked(client, 1000) for client in (first, second)] == ["none", "exact"]
            running.stop()
            assert [asked(first, n) for n in range(1000, 1020)] == ["exact"] + ["none"] * 19
            assert [asked(first, n) for n in range(1000, 1020)] == ["exact"] * 20
            with EmbeddedStore.start(
                tmp_path / "again.log", port=place.port or 0, password=place.password
            ):
                deadline = time.monotonic() + 10
                number = 2000
                while time.monotonic() < deadline:
                    number += 1
                    asked(first, number)
                    if asked(second, number) == "exact":
                        break
                    time.sleep(0.1)
                else:
                    pytest.fail("the store is not shared again")
    one.close()
    other.close()
