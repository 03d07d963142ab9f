"""The pipelines of this repository, built and served: right, equal, lawful, and not reloaded."""

from __future__ import annotations

import csv
import functools
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mmctl.building.served import materialise
from mmctl.client import Client
from mmctl.client.samples import compare, read_samples
from mmctl.errors import InferenceError
from mmctl.exporters.accuracy.read import load_samples
from mmctl.exporters.accuracy.speed import measure_speed, one_thread
from mmctl.files import sha256_file
from mmctl.server.process import EmbeddedTriton
from mmctl.serving.session import Prepared, prepare, refuse_failures
from mmctl.triton.repository import read_lock
from mmctl.workspace import Workspace, read_workspace

pytestmark = [pytest.mark.live, pytest.mark.exports]

PIPELINES = ("content_moderation", "customer_service", "customer_service_chain")


@pytest.fixture(scope="module")
def repository(root: Path) -> Workspace:
    return read_workspace(root)


@pytest.fixture(scope="module")
def tree(repository: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    served = repository.state / "served" / "tests"  # on the disk of the versions: links, no copies
    shutil.rmtree(served, ignore_errors=True)
    return prepare(repository, [], served, print)


@pytest.fixture(scope="module")
def server(tree: Prepared, repository: Workspace) -> Iterator[EmbeddedTriton]:
    with EmbeddedTriton.start(
        tree.runtime, tree.tree.root, state=repository.state, private=True, say=print
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: EmbeddedTriton) -> Iterator[Client]:
    with Client(server.grpc) as running:
        yield running


def test_triton_loads_every_generated_default_config(server: EmbeddedTriton) -> None:
    refuse_failures(server)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_sample_gets_the_answer_it_expects(
    client: Client, repository: Workspace, pipeline: str
) -> None:
    samples = read_samples(repository.pipelines / pipeline / "samples")
    assert samples
    for sample in samples:
        response = client.infer(pipeline, sample.inputs)
        assert compare(response.outputs, sample.expect) == [], sample.name


def test_a_second_load_of_an_unchanged_tree_reloads_nothing(
    server: EmbeddedTriton, tree: Prepared, repository: Workspace
) -> None:
    before = server.stub_pids()
    again = materialise(repository, tree.built.models, tree.tree.root)
    assert again.changed == ()
    for name in PIPELINES:
        server.load(name)
    assert server.stub_pids() == before


def test_a_comment_in_model_yaml_changes_no_version(repository: Workspace, tmp_path: Path) -> None:
    from mmctl.exporters.keys import build_key
    from mmctl.exporters.spec import read_model

    copy = read_workspace(_copy_of_sources(repository, tmp_path))
    path = copy.models / "nsfw" / "model.yaml"
    path.write_text("# a comment\n" + path.read_text())
    lock = read_lock(copy.models / "nsfw")
    assert lock is not None
    assert build_key(copy, read_model(copy, "nsfw")) == lock.build_key


def _copy_of_sources(repository: Workspace, target: Path) -> Path:
    ignore = shutil.ignore_patterns("[0-9]*")
    shutil.copytree(repository.models, target / "model_repository", ignore=ignore)
    shutil.copytree(repository.pipelines, target / "ensembles")
    shutil.copytree(repository.root / "calibration", target / "calibration")
    shutil.copy(repository.root / "mmctl.yaml", target)
    return target


@pytest.fixture(scope="module")
def texts(shared_dir: Path) -> list[str]:
    """200 questions of customers."""
    with (shared_dir / "data" / "intent" / "banking77_test.csv").open() as file:
        rows = [row["text"] for row in csv.DictReader(file)]
    return rows[:: len(rows) // 200][:200]


def test_the_serial_and_the_parallel_customer_service_answer_alike(
    client: Client, texts: list[str]
) -> None:
    for start in range(0, len(texts), 20):
        batch = {"text": texts[start : start + 20]}
        serial = client.infer("customer_service_chain", batch).outputs
        side_by_side = client.infer("customer_service", batch).outputs
        assert list(serial) == list(side_by_side)
        for name, values in serial.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(values, side_by_side[name], atol=1e-4, err_msg=name)
            else:
                assert values.tolist() == side_by_side[name].tolist(), name


@pytest.fixture(scope="module")
def right(client: Client, shared_dir: Path) -> Callable[[str], float]:
    """Share of right answers of a pipeline on the official test set of BANKING77."""
    with (shared_dir / "data" / "intent" / "banking77_test.csv").open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: len(row["text"]))  # alike in length

    @functools.cache
    def share(pipeline: str) -> float:
        found = 0
        for start in range(0, len(rows), 32):
            batch = rows[start : start + 32]
            texts = {"text": [row["text"] for row in batch]}
            labels = client.infer(pipeline, texts).outputs["intent"].ravel()
            found += sum(row["category"] == got for row, got in zip(batch, labels, strict=True))
        return found / len(rows)

    return share


def test_intents_are_as_accurate_as_the_head_was_measured(right: Callable[[str], float]) -> None:
    """0.9315, within half a point."""
    assert right("intent") == pytest.approx(0.9315, abs=0.005)


def test_int8_costs_less_than_half_a_point_of_the_intents(right: Callable[[str], float]) -> None:
    assert right("intent_int8") >= right("intent") - 0.005


@pytest.mark.usefixtures("tree")
def test_int8_is_smaller_and_faster_in_one_run(repository: Workspace) -> None:
    """It takes 0.44 of FP32's CPU time; the bound is for machines that are busy or have no VNNI."""
    fp32, int8 = (_file(repository, name) for name in ("minilm", "minilm_int8"))
    assert int8.stat().st_size <= 0.3 * fp32.stat().st_size
    texts = load_samples(repository.root, "texts:held_out")[0]
    batches = {size: texts.cut(0, size).inputs for size in (1, 8)}
    for speed in measure_speed(one_thread(fp32), one_thread(int8), batches):
        assert speed.cpu.value < 2 * 0.44, speed.text()


def _rows(repository: Workspace, pipeline: str, count: int) -> list[dict[str, object]]:
    samples = read_samples(repository.pipelines / pipeline / "samples")
    return [dict(samples[i % len(samples)].inputs) for i in range(count)]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_batch_law_holds(client: Client, repository: Workspace, pipeline: str) -> None:
    """f(concat(a, b)) = concat(f(a), f(b)): rows of a batch are answered as if they came alone."""
    rows = _rows(repository, pipeline, 7)
    together = client.infer(pipeline, _stack(rows)).outputs
    for index, row in enumerate(rows):
        alone = client.infer(pipeline, _stack([row])).outputs
        for name, values in alone.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(together[name][index], values[0], atol=1e-4)
            else:
                assert together[name][index].tolist() == values[0].tolist(), (name, index)


def _stack(rows: list[dict[str, object]]) -> dict[str, object]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _file(repository: Workspace, model: str) -> Path:
    lock = read_lock(repository.models / model)
    assert lock is not None
    return repository.models / model / str(lock.version) / "model.onnx"


def _session(repository: Workspace, model: str) -> object:
    import onnxruntime

    file = _file(repository, model)
    assert sha256_file(file)
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8, 16, 31, 32])
def test_the_served_encoder_answers_as_onnx_runtime_does_in_process(
    client: Client, repository: Workspace, batch: int
) -> None:
    session = _session(repository, "minilm")
    _same_as_in_process(client, session, batch, np.random.default_rng(batch))


def test_eight_clients_with_different_batch_sizes_each_get_their_own_rows(
    server: EmbeddedTriton, repository: Workspace
) -> None:
    session = _session(repository, "minilm")
    failures: list[BaseException] = []

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            with Client(server.grpc) as own:
                for _ in range(6):
                    _same_as_in_process(own, session, int(rng.integers(1, 9)), rng)
        except BaseException as error:  # noqa: BLE001 - told in the main thread
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def _same_as_in_process(
    client: Client, session: object, batch: int, rng: np.random.Generator
) -> None:
    ids = rng.integers(1000, 20000, (batch, 16))
    mask = np.ones_like(ids)
    mask[:, int(rng.integers(4, 16)) :] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    (expected,) = session.run(None, inputs)  # type: ignore[attr-defined]
    served = client.infer("minilm", inputs).outputs["embedding"]
    np.testing.assert_allclose(served, expected, atol=1e-5)


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(b"not an image", id="text instead of an image"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, id="broken PNG"),
    ],
)
def test_a_post_with_a_photo_that_is_none_goes_to_a_moderator(client: Client, image: bytes) -> None:
    """`nsfw` declares what counts when it fails, or what feeds it."""
    assert moderated(client, image) == ("review", "photo not judged (no answer)")


def test_an_image_bomb_is_refused_before_it_is_decoded(client: Client) -> None:
    bomb = _png_of(10_000, 10_000)
    assert len(bomb) < 1_000_000
    assert moderated(client, bomb) == ("review", "photo not judged (no answer)")
    with pytest.raises(InferenceError, match="megapixels"):
        client.infer("content_moderation__pixels", {"image": bomb})


def moderated(client: Client, image: object) -> tuple[str, str]:
    """Verdict and reasons for a harmless text with that image."""
    outputs = client.infer("content_moderation", {"text": "hello", "image": image}).outputs
    return outputs["verdict"].ravel()[0], outputs["reasons"].ravel()[0]


def _png_of(width: int, height: int) -> bytes:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress((b"\x00" + b"\x00" * ((width + 7) // 8)) * height, 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def test_one_bad_image_among_good_ones_fails_alone(
    server: EmbeddedTriton, repository: Workspace
) -> None:
    good = read_samples(repository.pipelines / "content_moderation" / "samples")[0]

    def ask(index: int) -> tuple[str, str]:
        with Client(server.grpc) as own:
            return moderated(own, b"broken" if index == 3 else good.inputs["image"])

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert [answers[i] for i in range(8) if i != 3] == [("allow", "")] * 7
    assert answers[3] == ("review", "photo not judged (no answer)")


def test_unicode_survives_the_whole_way(client: Client) -> None:
    text = "Grüße, 你好, 🙂: where is my new card?"
    state = client.infer("customer_service", {"text": text}).outputs
    assert json.loads(state["entities"].ravel()[0]) is not None
