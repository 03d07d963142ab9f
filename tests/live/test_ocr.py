"""Pipelines ocr and document_qa on a real Triton: every line of 40 pages, and of none at all."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - pictures to send
from servers import Serve

from mmctl.client import Client
from mmctl.client.samples import compare, read_samples
from mmctl.errors import InferenceError
from mmctl.server.process import EmbeddedTriton
from mmctl.serving.session import prepare, refuse_failures
from mmctl.workspace import Workspace, read_workspace

pytestmark = [pytest.mark.live, pytest.mark.exports]

PIPELINES = ("ocr", "ocr_line", "document_qa")

SAME = str.maketrans({" ": "", "：": ":", "！": "!", "，": ","})
"""What the recogniser may write either way."""


@pytest.fixture(scope="module")
def repository(root: Path) -> Workspace:
    return read_workspace(root)


@pytest.fixture(scope="module")
def server(repository: Workspace, serve: Serve) -> EmbeddedTriton:
    served = repository.state / "served" / "tests-ocr"  # on the disk of the versions: links
    shutil.rmtree(served, ignore_errors=True)
    tree = prepare(repository, PIPELINES, served, print).tree
    server = serve(tree.root)
    refuse_failures(server)
    return server


@pytest.fixture(scope="module")
def client(server: EmbeddedTriton) -> Iterator[Client]:
    with Client(server.grpc) as running:
        yield running


def read(client: Client, *images: bytes) -> list[list[dict[str, Any]]]:
    """The lines of each image, one request for all."""
    rows = np.array(images, object)[:, None]
    answer = client.infer("ocr", {"image": rows}).outputs
    pages = [json.loads(lines) for lines in answer["lines"].ravel()]
    texts = ["\n".join(line["text"] for line in page) for page in pages]
    assert answer["text"].ravel().tolist() == texts
    return pages


def texts_of(lines: Sequence[dict[str, Any]]) -> list[str]:
    return [line["text"].translate(SAME) for line in lines]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_sample_gets_the_answer_it_expects(
    client: Client, repository: Workspace, pipeline: str
) -> None:
    samples = read_samples(repository.pipelines / pipeline / "samples")
    assert samples
    for sample in samples:
        response = client.infer(pipeline, sample.inputs)
        assert compare(response.outputs, sample.expect) == [], sample.name


@pytest.fixture(scope="module")
def truth(shared_dir: Path) -> dict[str, dict[str, Any]]:
    """What stands on the 40 pages, by file: English and Chinese, eight upside down."""
    file = shared_dir / "data" / "ocr" / "ground_truth.json"
    if not file.is_file():
        pytest.skip("the test pages beside the checkout do not exist")
    pages: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return pages


def test_every_line_of_forty_pages_is_read_in_order(
    client: Client, truth: dict[str, dict[str, Any]], shared_dir: Path
) -> None:
    count = 0
    for name, page in truth.items():
        [lines] = read(client, (shared_dir / "data" / "ocr" / name).read_bytes())
        wanted = texts_of(page["lines"])
        assert texts_of(lines) == wanted, name
        count += len(wanted)
    assert (len(truth), count) == (40, 203)


def test_the_batch_law_holds_for_pages_of_any_size_and_number_of_lines(
    client: Client, repository: Workspace
) -> None:
    folder = repository.pipelines / "ocr" / "samples"
    names = ("invoice.jpg", "blank.png", "upside_down.jpg", "order_zh.jpg")
    images = [(folder / name).read_bytes() for name in names]
    together = read(client, *images)
    assert len({len(lines) for lines in together}) == 3
    for image, lines in zip(images, together, strict=True):
        [alone] = read(client, image)
        assert [(line["text"], line["box"]) for line in alone] == [
            (line["text"], line["box"]) for line in lines
        ]
        assert [line["score"] for line in alone] == pytest.approx(
            [line["score"] for line in lines], abs=1e-3
        )


@pytest.mark.parametrize("angle", [90, 180, 270, 12])
def test_a_page_is_read_as_its_reader_holds_it(
    client: Client, repository: Workspace, angle: int
) -> None:
    with Image.open(repository.pipelines / "ocr" / "samples" / "order_zh.jpg") as page:
        buffer = io.BytesIO()
        page.rotate(angle, expand=True, fillcolor="white").save(buffer, "PNG")
        upright = io.BytesIO()
        page.save(upright, "PNG")
    [turned], [wanted] = read(client, buffer.getvalue()), read(client, upright.getvalue())
    assert texts_of(turned) == texts_of(wanted)


def test_one_bad_image_among_good_ones_fails_alone(client: Client, repository: Workspace) -> None:
    good = (repository.pipelines / "ocr" / "samples" / "order_zh.jpg").read_bytes()

    def ask(image: bytes) -> int | str:
        try:
            [lines] = read(client, image)
            return len(lines)
        except InferenceError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        *others, bad = pool.map(ask, [good, good, good, b"no image"])
    assert others == [3, 3, 3]
    assert "prepare" in str(bad)
    assert "not an image that Pillow can read" in str(bad)


def test_the_answer_to_a_question_stands_where_its_box_is(
    client: Client, repository: Workspace
) -> None:
    image = (repository.pipelines / "ocr" / "samples" / "invoice.jpg").read_bytes()
    questions = ["What is the invoice number?", "How can I reach support?", "Can I return it?"]
    wanted = ["Invoice No. 2024-0315", "Support: +44 20 7946 0958", "Returns accepted until May 31"]
    inputs = {"image": [image] * len(questions), "question": questions}
    answer = client.infer("document_qa", inputs).outputs
    assert answer["answer"].ravel().tolist() == wanted
    [lines] = read(client, image)
    boxes = {line["text"]: line["box"] for line in lines}
    assert answer["box"].tolist() == [boxes[text] for text in wanted]
