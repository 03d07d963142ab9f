"""What is known of each release's image, and how surely."""

from __future__ import annotations

import pytest

from mmctl.errors import InputError
from mmctl.triton.releases import (
    IMAGES,
    ONNX_RUNTIMES,
    Version,
    fits_release,
    has_precision_flags,
    onnxruntime_in,
    parse_release,
    parse_version,
    render_version,
    tensorrt_in,
)


def test_rows_are_months_in_order_and_never_older_than_what_mmctl_knows() -> None:
    releases = [parse_release(name) for name in IMAGES]
    assert releases == sorted(releases)
    assert list(IMAGES) == [row.release for row in IMAGES.values()]


def test_tensorrt_only_goes_up() -> None:
    latest = [max(row.versions) for row in IMAGES.values() if row.checked]
    assert latest == sorted(latest)


def test_a_checked_row_is_one_version() -> None:
    assert all(len(row.tensorrt) == 1 for row in IMAGES.values() if row.checked)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        pytest.param("26.03", "TensorRT 10.16.0.72", id="checked"),
        pytest.param("25.08", "TensorRT 10.13.2 (likely, not checked)", id="guessed"),
        pytest.param(
            "25.07", "TensorRT 10.11 or 10.12 or 10.13 (likely, not checked)", id="one of several"
        ),
        pytest.param("24.05", "a TensorRT that mmctl does not know", id="before the table"),
        pytest.param("27.01", "a TensorRT that mmctl does not know", id="after the table"),
    ],
)
def test_which_tensorrt_a_release_has(release: str, said: str) -> None:
    assert tensorrt_in(parse_release(release)) == said


@pytest.mark.parametrize(
    ("version", "release", "verdict"),
    [
        pytest.param((10, 16, 0, 72), "26.03", "fits", id="the same"),
        pytest.param((10, 16, 1, 11), "26.03", "differs", id="another patch"),
        pytest.param((10, 5, 0, 18), "24.10", "fits", id="as far as the table knows"),
        pytest.param((11, 1, 0, 106), "24.10", "differs", id="another major"),
        pytest.param((10, 13, 2, 6), "25.08", "unsure", id="a row nobody checked"),
        pytest.param((10, 13, 2, 6), "27.01", "unsure", id="no row"),
    ],
)
def test_an_engine_fits_one_tensorrt(version: Version, release: str, verdict: str) -> None:
    assert fits_release(version, parse_release(release)) == verdict


@pytest.mark.parametrize(
    ("release", "has"),
    [("24.10", True), ("26.05", True), ("26.06", False), ("26.07", False), ("27.01", False)],
)
def test_tensorrt_11_has_no_precision_flags(release: str, has: bool) -> None:
    assert has_precision_flags(parse_release(release)) is has


def test_what_onnx_runtime_reads_only_grows() -> None:
    read = [(row.ir_version, row.opset, row.keeps_inside) for row in ONNX_RUNTIMES]
    assert read == sorted(read)


def test_every_image_has_a_row() -> None:
    known = {row.version for row in ONNX_RUNTIMES}
    named = {row.onnxruntime.rpartition(".")[0] for row in IMAGES.values() if row.onnxruntime}
    assert named <= known


@pytest.mark.parametrize(
    ("release", "version"),
    [
        pytest.param("24.10", "1.19", id="in the table"),
        pytest.param("26.03", "1.24", id="a later one"),
        pytest.param("24.01", "1.19", id="before the table: it reads no more than its first row"),
        pytest.param("26.09", "1.32", id="not written down yet"),
        pytest.param("27.01", "1.32", id="after the table"),
        pytest.param(None, "1.32", id="no release: the latest"),
    ],
)
def test_which_onnx_runtime_a_release_has(release: str | None, version: str) -> None:
    assert onnxruntime_in(parse_release(release) if release else None).version == version


def test_versions_survive_their_text() -> None:
    assert render_version(parse_version("10.13.3.9")) == "10.13.3.9"


@pytest.mark.parametrize("text", ["10", "10.x", "10.1.2.3.4", ""])
def test_other_text_is_no_version(text: str) -> None:
    with pytest.raises(InputError, match="is not a TensorRT version"):
        parse_version(text)
