"""Values of `on_error:`, which stand for the outputs of a node that failed."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import numpy as np

from mmctl.diagnostics import nearest
from mmctl.documents import Data, Key
from mmctl.pipeline.findings import POLICY
from mmctl.pipeline.graph import Json
from mmctl.pipeline.nodes.base import NodeEntry
from mmctl.pipeline.scope import Callee, Scope
from mmctl.tensors import DType, TensorType

FAIL = "fail"

LARGEST = {
    DType.FP16: 65504.0,
    DType.BF16: 3.3895313892515355e38,
    DType.FP32: 3.4028235e38,
    DType.FP64: math.inf,
}
_WHOLE = re.compile(r"[-+]?[0-9]+")


class WrongValue(ValueError):
    """`at` leads from the value of the output to the part of it that is wrong."""

    def __init__(self, message: str, *at: Key) -> None:
        super().__init__(message)
        self.at = at


def read_defaults(
    name: str, node: NodeEntry, read: Collection[str], scope: Scope
) -> dict[str, Json] | None:
    """`on_error` with its types; None when a failure flows on. `read`: outputs that have readers.

    A finding for each value that does not fit, and for each output that is read and has none.
    """
    place = ("nodes", name, "on_error")
    if node.on_error == FAIL:
        return None
    if not isinstance(node.on_error, dict):
        message = f"`{name}.on_error` is `fail`, or a value for each output"
        scope.report.add(POLICY, message, *place, hint="write on_error: {OUTPUT: VALUE}")
        return None
    callee = scope.callee(name)
    if callee is None:
        return None
    found = {
        key: _read_default(name, key, value, callee, scope) for key, value in node.on_error.items()
    }
    missing = [spec for spec in callee.gives if spec.name in read and spec.name not in found]
    unknown = found.keys() - {spec.name for spec in callee.gives}
    for spec in missing if len(missing) > len(unknown) else ():
        message = f"`{name}.on_error` has no value for `{spec.name}`, which is read"
        hint = f"add it: on_error: {{{spec.name}: {_example(callee.type_of(spec))}}}"
        scope.report.add(POLICY, message, *place, hint=hint)
    return found


def _read_default(name: str, key: str, value: Data, callee: Callee, scope: Scope) -> Json:
    place = ("nodes", name, "on_error", key)
    spec = callee.output(key)
    if spec is None:
        hint = nearest(key, [spec.name for spec in callee.gives])
        scope.report.add_key(POLICY, f"`{name}` has no output `{key}`", *place, hint=hint)
        return None
    kind = callee.type_of(spec)
    try:
        return read_value(value, kind)
    except WrongValue as error:
        message = f"`{name}.on_error`: `{key}` is {kind}, but {error}"
        hint = f"such as {key}: {_example(kind)}"
        scope.report.add(POLICY, message, *place, *error.at, hint=hint)
        return None


def read_value(value: Data, kind: TensorType) -> Json:
    """One element, which fills the shape, or a list of the shape of one row; of a list tensor its
    items. Scalars of a document are text. Raises WrongValue.
    """
    if not kind.items:
        return _read(value, kind.dtype, kind.dims)
    if not isinstance(value, list):
        raise WrongValue("a list tensor has a list of items, [] for none")
    return _each(value, kind.dtype, kind.dims)


def _read(value: Data, dtype: DType, dims: tuple[int, ...]) -> Json:
    if not isinstance(value, list):
        return _element(value, dtype)
    if not dims:
        raise WrongValue(f"the value has a list of {len(value)} where one element stands")
    if dims[0] not in (-1, len(value)):
        raise WrongValue(f"the value has {len(value)} where the shape has {dims[0]}")
    for index, part in enumerate(value):
        if len(dims) > 1 and not isinstance(part, list):
            raise WrongValue("a list has one list for each axis", index)
    found = _each(value, dtype, dims[1:])
    for index, part in enumerate(found):
        if _shape(part) != _shape(found[0]):
            raise WrongValue("the value differs in shape from the one before it", index)
    return found


def _each(values: list[Data], dtype: DType, dims: tuple[int, ...]) -> list[Json]:
    found = []
    for index, value in enumerate(values):
        try:
            found.append(_read(value, dtype, dims))
        except WrongValue as error:
            raise WrongValue(str(error), index, *error.at) from None
    return found


def _shape(value: Json) -> tuple[int, ...]:
    """Of a value whose parts are equal in shape."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(_shape(value[0]) if value else ()))


def _element(value: Data, dtype: DType) -> Json:
    if not isinstance(value, str):
        raise WrongValue("the value is " + ("empty" if value is None else "a mapping"))
    if dtype.is_text:
        return value
    if dtype is DType.BOOL:
        return _flag(value)
    return _float(value, dtype) if dtype in LARGEST else _int(value, dtype)


def _flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise WrongValue(f"`{value}` is neither true nor false")
    return value == "true"


def _float(value: str, dtype: DType) -> float:
    try:
        number = float(value)
    except ValueError:
        raise WrongValue(f"`{value}` is no number") from None
    if not math.isfinite(number):
        raise WrongValue(f"`{value}` is no finite number")
    if abs(number) > LARGEST[dtype]:
        raise WrongValue(f"`{value}` is more than {dtype} holds ({LARGEST[dtype]:g})")
    return number


def _int(value: str, dtype: DType) -> int:
    if not _WHOLE.fullmatch(value) or len(value) > 40:
        raise WrongValue(f"`{value}` is no whole number")
    limits = np.iinfo(dtype.numpy.name)
    if not limits.min <= int(value) <= limits.max:
        raise WrongValue(f"`{value}` is outside of {limits.min} to {limits.max}")
    return int(value)


def _example(kind: TensorType) -> str:
    if kind.items:
        return "[]"
    if kind.dtype.is_text:
        return '""'
    return "false" if kind.dtype is DType.BOOL else "0"
