"""Names and types as they stand in pipeline.yaml, with a finding for each that is wrong."""

from __future__ import annotations

import re

from mmctl.documents import Key
from mmctl.pipeline.findings import NAME, TENSOR_NAME, TYPE, Report
from mmctl.tensors import TensorType, parse_type
from mmctl.workspace import check_name

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_node_name(report: Report, name: str) -> None:
    if problem := check_name(name):
        report.add_key(NAME, problem, "nodes", name)
    elif name == "next":
        problem = "`next` is reserved: a candidate of the pipeline is served under that name"
        report.add_key(NAME, problem, "nodes", name)


def check_tensor_name(report: Report, name: str, *location: Key) -> None:
    """Of the tensor whose name is the key at `location`."""
    if not IDENTIFIER.fullmatch(name):
        message = f"`{name}` is not a tensor name: use letters, digits and _, no digit first"
        report.add_key(TENSOR_NAME, message, *location)
    elif "__" in name:
        message = f"`{name}`: `__` is reserved for the copies that mmctl makes"
        report.add_key(TENSOR_NAME, message, *location)


def read_type(report: Report, text: str, *location: Key) -> TensorType | None:
    """The type at `location`; None with a finding when it is none."""
    try:
        return parse_type(text)
    except ValueError as error:
        report.add(TYPE, str(error), *location)
        return None


def read_types(
    report: Report, entries: dict[str, str], *location: Key
) -> dict[str, TensorType | None]:
    """Types by tensor name, of the mapping at `location`; None where one is wrong."""
    for name in entries:
        check_tensor_name(report, name, *location, name)
    return {name: read_type(report, text, *location, name) for name, text in entries.items()}
