"""Ready-made steps: what `{step: {use: NAME, ...}}` may say, and which tensors come of it.

To add one: options, a `types` function and a row here; a module `compiler/shipped/ready_NAME.py`
whose `make(options, folder)` returns the function; rows in tests/contract/test_ready_steps.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from mmctl.documents import Entry, Flag
from mmctl.pipeline.source import Asset
from mmctl.tensors import DType, TensorSpec, TensorType

FREE = -1
FLOATS = (DType.FP16, DType.FP32, DType.FP64)

Specs = tuple[TensorSpec, ...]
Fed = Mapping[str, TensorType | None]
"""What feeds each input of the node, as the node names them; None where that is not known."""
Assets = Mapping[str, Asset]


class ReadyOptions(Entry):
    """Base of all options; `FILES` are the fields that name an asset or a `package:` file."""

    FILES: ClassVar[tuple[str, ...]] = ()

    use: str


@dataclass(frozen=True, slots=True)
class Ready:
    """`types` gives inputs and outputs for valid options, None while it cannot tell; it raises
    ValueError when the step cannot use what feeds it. `join`: one call may serve several requests.
    """

    options: type[ReadyOptions]
    types: Callable[[Any, Fed, Assets], tuple[Specs, Specs] | None]
    join: bool = True


class TokenizeOptions(ReadyOptions):
    """Text -> ids for a transformer. `tokenizer` is a tokenizer.json of Hugging Face.

    Longer texts are cut at `max_length` tokens. `offsets` adds where each token stands in the
    text (characters from, to); `types` adds token_type_ids.
    """

    FILES = ("tokenizer",)

    tokenizer: str
    max_length: Annotated[int, Field(ge=2, le=32768)] = 128
    offsets: Flag = False
    types: Flag = False


def _tokenize_types(options: TokenizeOptions, _fed: Fed, _assets: Assets) -> tuple[Specs, Specs]:
    row = TensorType(DType.INT64, (FREE,))
    gives = [TensorSpec("input_ids", row), TensorSpec("attention_mask", row)]
    if options.types:
        gives.append(TensorSpec("token_type_ids", row))
    if options.offsets:
        gives.append(TensorSpec("offsets", TensorType(DType.INT32, (FREE, 2))))
    return (TensorSpec("text", TensorType(DType.STRING)),), tuple(gives)


def _fraction(value: object) -> object:
    """`1/255` may stand where a number is asked for."""
    if not isinstance(value, str) or "/" not in value:
        return value
    try:
        return float(Fraction(value))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError("write a number, or a fraction such as 1/255") from None


def _list(value: object) -> object:
    """One value may stand for a list of one."""
    return (value,) if isinstance(value, str | int | float) else value


def _pair(value: object) -> object:
    """`224` means [224, 224]: height, width."""
    return (value, value) if isinstance(value, str | int) else value


def _triple(value: object) -> object:
    """One number means the same for all three channels."""
    return (value,) * 3 if isinstance(value, str | int | float) else value


Pixels = Annotated[int, Field(ge=1, le=8192)]
Area = Annotated[tuple[Pixels, Pixels], BeforeValidator(_pair)]
Resize = Annotated[tuple[Pixels, ...], BeforeValidator(_list), Field(min_length=1, max_length=2)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = Annotated[Finite, BeforeValidator(_fraction)]
PerChannel = Annotated[tuple[Number, Number, Number], BeforeValidator(_triple)]
Scale = Annotated[Number, Field(gt=0)]


class ImageOptions(ReadyOptions):
    """Bytes of an image file -> pixels, `(pixel * scale - mean) / std`.

    `size` squeezes the image to [height, width]. Else `resize` does that when it is a pair, or
    brings the shorter side to one number; then `crop` takes the centre. `mean` and `std` are one
    number or three, in the order of `channels`.
    """

    size: Area | None = None
    resize: Resize | None = None
    crop: Area | None = None
    layout: Literal["nchw", "nhwc"] = "nchw"
    channels: Literal["rgb", "bgr"] = "rgb"
    scale: Scale = 1.0
    mean: PerChannel = (0.0, 0.0, 0.0)
    std: PerChannel = (1.0, 1.0, 1.0)
    filter: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    jpeg_round_trip: Flag = False
    max_megapixels: Annotated[float, Field(gt=0, le=1000)] = 50.0

    @model_validator(mode="after")
    def _gives_one_size(self) -> ImageOptions:
        if 0 in self.std:
            raise ValueError("`std` divides, so it cannot be 0")
        if self.size is not None and (self.resize is not None or self.crop is not None):
            raise ValueError("`size` stands alone: `resize` and `crop` are the other way")
        if self.size is None and self.crop is None and len(self.resize or ()) < 2:
            raise ValueError("say how large the pixels are: size: 224, or resize and crop")
        if self.crop is not None and self.resize is not None:
            height, width = self.resize[0], self.resize[-1]
            if self.crop[0] > height or self.crop[1] > width:
                raise ValueError("`crop` is larger than what `resize` leaves")
        return self

    @property
    def area(self) -> tuple[int, int]:
        """Height and width of what comes out."""
        height, *_, width = self.size or self.crop or self.resize or (0, 0)
        return height, width


def _image_types(options: ImageOptions, _fed: Fed, _assets: Assets) -> tuple[Specs, Specs]:
    dims = (3, *options.area) if options.layout == "nchw" else (*options.area, 3)
    return (
        (TensorSpec("image", TensorType(DType.BYTES)),),
        (TensorSpec("pixels", TensorType(DType.FP32, dims)),),
    )


class LabelsOptions(ReadyOptions):
    """Scores of a classifier -> the best label and its score; `softmax` turns logits into
    probabilities first. The labels stand in `labels`, or in `file`, one a line.
    """

    FILES = ("file",)

    labels: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    file: str | None = None
    softmax: Flag = False

    @model_validator(mode="after")
    def _has_labels_once(self) -> LabelsOptions:
        if (self.labels is None) == (self.file is None):
            raise ValueError("give the labels once: `labels: [...]` or `file: NAME`")
        return self


def _labels_types(options: LabelsOptions, fed: Fed, assets: Assets) -> tuple[Specs, Specs]:
    scores = TensorType(_float_of(fed, "scores"), (_label_count(options, assets),))
    return (
        (TensorSpec("scores", scores),),
        (
            TensorSpec("label", TensorType(DType.STRING)),
            TensorSpec("score", TensorType(DType.FP32)),
        ),
    )


def _label_count(options: LabelsOptions, assets: Assets) -> int:
    """A package's file cannot be counted here: the step itself checks then."""
    if options.labels is not None:
        return len(options.labels)
    asset = assets.get(options.file or "")
    if asset is None or asset.package:
        return FREE
    return len(asset.content.decode(errors="replace").splitlines())


class ThresholdOptions(ReadyOptions):
    """A score -> whether it reaches the (last) threshold; with `labels`, one more than there are
    thresholds, also the name of its band. `index` picks the score out of a row of several.
    """

    at: Annotated[tuple[Finite, ...], BeforeValidator(_list), Field(min_length=1)]
    labels: tuple[str, ...] | None = None
    index: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _bands_fit(self) -> ThresholdOptions:
        if list(self.at) != sorted(set(self.at)):
            raise ValueError("`at` rises from one threshold to the next")
        if self.labels is not None and len(self.labels) != len(self.at) + 1:
            raise ValueError(f"{len(self.at)} thresholds have {len(self.at) + 1} bands to label")
        return self


def _threshold_types(options: ThresholdOptions, fed: Fed, _assets: Assets) -> tuple[Specs, Specs]:
    dims = () if options.index is None else (FREE,)
    source = fed.get("score")
    if options.index is None and source is not None and source.triton_dims != (1,):
        raise ValueError(f"`score` is {source}: `index` says which of its values is meant")
    gives = [TensorSpec("passed", TensorType(DType.BOOL))]
    if options.labels is not None:
        gives.append(TensorSpec("label", TensorType(DType.STRING)))
    return (TensorSpec("score", TensorType(_float_of(fed, "score"), dims)),), tuple(gives)


class JoinOptions(ReadyOptions):
    """Several inputs -> one, in the order they are written. Strings are joined with `separator`
    between them; numbers are put one after the other on the last axis.
    """

    separator: str = " "


def _join_types(_options: JoinOptions, fed: Fed, _assets: Assets) -> tuple[Specs, Specs] | None:
    if len(fed) < 2:
        raise ValueError("it takes two or more inputs")
    takes = tuple(TensorSpec(name, kind) for name, kind in fed.items() if kind is not None)
    if len(takes) < len(fed):
        return None
    return takes, (TensorSpec("joined", _joined([spec.type for spec in takes])),)


def _joined(kinds: list[TensorType]) -> TensorType:
    dtypes = {kind.dtype for kind in kinds}
    if all(dtype.is_text for dtype in dtypes):
        if any(kind.dims for kind in kinds):
            raise ValueError("it joins strings of one value a row")
        return TensorType(DType.STRING)
    if len(dtypes) > 1:
        raise ValueError(f"its inputs differ in type: {', '.join(sorted(dtypes))}")
    rows = [kind.triton_dims for kind in kinds]
    if len({row[:-1] for row in rows}) > 1:
        raise ValueError(f"its inputs differ before the last axis: {', '.join(map(str, kinds))}")
    last = [row[-1] for row in rows]
    return TensorType(kinds[0].dtype, (*rows[0][:-1], FREE if FREE in last else sum(last)))


def _float_of(fed: Fed, name: str) -> DType:
    """Any float type will do: the one that comes, else fp32."""
    source = fed.get(name)
    return source.dtype if source is not None and source.dtype in FLOATS else DType.FP32


READY: dict[str, Ready] = {
    "image": Ready(ImageOptions, _image_types),
    "tokenize": Ready(TokenizeOptions, _tokenize_types, join=False),
    "labels": Ready(LabelsOptions, _labels_types),
    "threshold": Ready(ThresholdOptions, _threshold_types),
    "join": Ready(JoinOptions, _join_types),
}
