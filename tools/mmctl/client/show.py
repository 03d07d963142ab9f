"""The same request as a Python program, a curl command or a perf_analyzer command. Pure."""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np

from mmctl.client.answers import plain
from mmctl.client.sources import FromFile, FromNpy, Leaf, Source, leaves
from mmctl.tensors import Array, DType, Signature, dtype_of
from mmctl.wire import encode, encode_text, encoded_size

MAX_ARGUMENT = 100_000  # Linux ends one argument of a program at 128 KiB


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A request as the user wrote it (`sources`) and as it is sent (`arrays`), and where to.

    `grpc` and `http` are host:port.
    """

    model: str
    sources: Mapping[str, Source]
    arrays: Mapping[str, Array]
    signature: Signature
    grpc: str
    http: str


def show_python(call: Call) -> str:
    """A program that sends the request with mmctl.Client and prints the outputs."""
    values = {name: _expression(source) for name, source in call.sources.items()}
    text = " ".join(values.values())
    imports = "from pathlib import Path\n\n" if "Path(" in text else ""
    imports += "import mmctl\n" + ("import numpy as np\n" if "np.load(" in text else "")
    inputs = "".join(f"            {_word(name)}: {value},\n" for name, value in values.items())
    return (
        f"{imports}\n"
        f"with mmctl.Client({_word(call.grpc)}) as client:\n"
        f"    answer = client.infer(\n        {_word(call.model)},\n"
        f"        {{\n{inputs}        }},\n    )\n"
        "for name, array in answer.outputs.items():\n"
        "    print(name, array.tolist())"
    )


def _expression(source: Source) -> str:
    match source:
        case list():
            return f"[{', '.join(_expression(item) for item in source)}]"
        case FromFile(path):
            return f"Path({_word(str(path))}).read_bytes()"
        case FromNpy(path):
            return f"np.load({_word(str(path))})"
        case float() if not math.isfinite(source):
            return f"float({_word(str(source))})"
        case str():
            return _word(source)
        case _:
            return repr(source)


def _word(text: str) -> str:
    """A string of Python, in double quotes where that is easy."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)


def show_curl(call: Call) -> str:
    """A command for Triton's HTTP port: JSON, with what JSON cannot carry behind it as bytes."""
    inputs: list[dict[str, object]] = []
    behind: list[str] = []
    for name, array in call.arrays.items():
        word = dtype_of(array.dtype).wire
        inputs.append({"name": name, "shape": list(array.shape), "datatype": word})
        if _json_can_carry(array, call.sources[name]):
            inputs[-1]["data"] = _data(array)
        else:
            inputs[-1]["parameters"] = {"binary_data_size": encoded_size(array)}
            behind += _printers(array, call.sources[name])
    header = json.dumps({"inputs": inputs, **_wanted_outputs(call.signature)}, ensure_ascii=False)
    quoted = shlex.quote(header)
    url = f"http://{call.http}/v2/models/{quote(call.model, safe='')}/infer"
    curl = f"curl -sS {shlex.quote(url)}"
    if behind:
        length = len(header.encode())
        return (
            f"{{\n  printf '%s' {quoted}\n" + "".join(f"  {line}\n" for line in behind) + "} | "
            f"{curl} -H 'Content-Type: application/octet-stream' "
            f"-H 'Inference-Header-Content-Length: {length}' --data-binary @-"
        )
    if len(quoted) > MAX_ARGUMENT:  # printf is built into the shell
        return f"printf '%s' {quoted} | {curl} -H 'Content-Type: application/json' --data-binary @-"
    return f"{curl} -H 'Content-Type: application/json' -d {quoted}"


def _json_can_carry(array: Array, source: Source) -> bool:
    """Triton takes no fp16 as JSON, JSON has no NaN and no bytes; a file stays a file."""
    if array.dtype.kind == "O":
        texts = all(_is_utf8(item) for item in array.ravel())
        return texts and not any(isinstance(leaf, FromFile) for leaf in leaves(source))
    if array.dtype.kind == "f":
        return array.dtype.itemsize > 2 and bool(np.isfinite(array).all())
    return True


def _is_utf8(item: str | bytes) -> bool:
    try:
        return isinstance(item, str) or item.decode() is not None
    except UnicodeDecodeError:
        return False


def _data(array: Array) -> list[object]:
    """Flat, as both Triton and perf_analyzer take it."""
    if array.dtype.kind == "O":
        return [item if isinstance(item, str) else item.decode() for item in array.ravel()]
    values: list[object] = plain(array.ravel())
    return values


def _printers(array: Array, source: Source) -> Iterator[str]:
    """Shell commands that print a tensor's bytes."""
    if array.dtype.kind != "O":
        yield _printed(encode(array))
        return
    items, origins = array.ravel().tolist(), leaves(source)
    if len(items) != len(origins):
        origins = items
    for item, origin in zip(items, origins, strict=True):
        yield from _text_printers(item, origin)


def _text_printers(item: str | bytes, origin: Leaf | bytes) -> Iterator[str]:
    raw = encode_text(item)
    if isinstance(origin, FromFile):
        yield "printf '" + "".join(f"\\{byte:03o}" for byte in raw[:4]) + "'"  # the length
        yield f"cat -- {shlex.quote(str(origin.path))}"
    else:
        yield _printed(raw)


def _printed(raw: bytes) -> str:
    return f"printf '%s' {_base64(raw)} | base64 -d"


def _wanted_outputs(signature: Signature) -> dict[str, object]:
    """Nothing, which is all outputs as JSON, unless one of them is fp16."""
    if all(spec.type.dtype is not DType.FP16 for spec in signature.outputs):
        return {}
    return {
        "outputs": [
            {"name": spec.name, "parameters": {"binary_data": spec.type.dtype is DType.FP16}}
            for spec in signature.outputs
        ]
    }


def show_perf_analyzer(call: Call) -> str:
    """A file with one entry per row, and the command that sends it as one request over and over."""
    batched = call.signature.max_batch > 0
    rows = len(next(iter(call.arrays.values()))) if batched and call.arrays else 1
    entries = [
        {name: _content(array[row] if batched else array) for name, array in call.arrays.items()}
        for row in range(rows)
    ]
    model, file = shlex.quote(call.model), shlex.quote(f"{call.model}.requests.json")
    batch = f" -b {rows}" if batched else ""
    return (
        f"cat > {file} <<'JSON'\n{json.dumps({'data': entries}, ensure_ascii=False)}\nJSON\n"
        f"perf_analyzer -m {model} -i grpc -u {call.grpc} --input-data {file}{batch}"
    )


def _content(array: Array) -> dict[str, object]:
    """perf_analyzer wants the shape without the batch; base64 is of the bytes on the wire."""
    fits = _json_can_carry(array, [])
    content = _data(array) if fits else {"b64": _base64(encode(array))}
    return {"content": content, "shape": list(array.shape)}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


SHOWN: Mapping[str, Callable[[Call], str]] = {
    "python": show_python,
    "curl": show_curl,
    "perf_analyzer": show_perf_analyzer,
}
