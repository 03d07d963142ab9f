"""The ready-made step `image`: the bytes of an image file -> pixels as a model wants them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""What is decoded: no format that starts another program or reads other files."""


class TooLarge(ValueError):
    """More pixels than are allowed."""


Image.MAX_IMAGE_PIXELS = None  # `max_megapixels` decides, on the header, before any decoding


def make(options: Mapping[str, Any], _folder: Path) -> Callable[..., dict[str, Any]]:
    """`f(image [batch])` -> pixels [batch, 3, height, width], or channels last."""

    def image(image: Any) -> dict[str, Any]:
        return {"pixels": np.stack([one(data, row) for row, data in enumerate(image)])}

    def one(data: bytes, row: int) -> Any:
        try:
            return pixels_of(data, options)
        except ValueError as error:
            raise ValueError(f"`image`: {error} (row {row} of the request)") from error

    return image


def pixels_of(data: bytes, options: Mapping[str, Any]) -> Any:
    """Pixels of one file: upright, resized, cropped, normalised. Raises ValueError."""
    picture = shaped(decoded(data, options["max_megapixels"]), options)
    if options["jpeg_round_trip"]:
        picture = through_jpeg(picture)
    picture = cropped(picture, options["crop"])
    array = np.asarray(picture, dtype=np.float32)
    if options["channels"] == "bgr":
        array = array[:, :, ::-1]
    array = normalised(array, options)
    return array if options["layout"] == "nhwc" else array.transpose(2, 0, 1)


def decoded(data: bytes, max_megapixels: float) -> Image.Image:
    """The picture in RGB, turned as its camera says. Its size is checked before it is decoded."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            check_size(picture.width, picture.height, max_megapixels)
            upright: Image.Image = ImageOps.exif_transpose(picture)
            return upright.convert("RGB")
    except TooLarge:
        raise
    except UnidentifiedImageError:
        raise ValueError("not an image that Pillow can read") from None
    except Exception as error:  # noqa: BLE001 - a broken file can raise anything in a decoder
        raise ValueError(f"not an image that Pillow can read: {error}") from None


def check_size(width: int, height: int, max_megapixels: float) -> None:
    megapixels = width * height / 1e6
    if megapixels > max_megapixels:
        raise TooLarge(f"{megapixels:.0f} megapixels, allowed are {max_megapixels:g}")


def shaped(picture: Image.Image, options: Mapping[str, Any]) -> Image.Image:
    """Resized to `size`, to the pair `resize`, or so that the shorter side has that length."""
    wanted = options["size"] or options["resize"]
    if wanted is None:
        return picture
    height, width = wanted if len(wanted) == 2 else by_short_side(picture, wanted[0])
    check_size(width, height, options["max_megapixels"])
    method = Image.Resampling[options["filter"].upper()]
    return picture.resize((width, height), method)


def by_short_side(picture: Image.Image, side: int) -> tuple[int, int]:
    scale = side / min(picture.size)
    return round(picture.height * scale), round(picture.width * scale)


def cropped(picture: Image.Image, area: Any) -> Image.Image:
    """The centre, [height, width]."""
    if area is None:
        return picture
    height, width = area
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    if left < 0 or top < 0:
        raise ValueError(
            f"{picture.height} x {picture.width} pixels, fewer than the crop of {height} x {width}"
        )
    return picture.crop((left, top, left + width, top + height))


def through_jpeg(picture: Image.Image) -> Image.Image:
    """Saved as JPEG and read again: some models were trained on what that leaves."""
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG")
    return Image.open(buffer).convert("RGB")


def normalised(array: Any, options: Mapping[str, Any]) -> Any:
    """`(pixel * scale - mean) / std`; steps that change nothing are left out."""
    if options["scale"] != 1:
        array = array * np.float32(options["scale"])
    if any(options["mean"]):
        array = array - np.array(options["mean"], dtype=np.float32)
    if any(value != 1 for value in options["std"]):
        array = array / np.array(options["std"], dtype=np.float32)
    return array
