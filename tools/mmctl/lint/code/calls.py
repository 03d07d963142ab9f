"""What a model.py does with other models, read from its syntax tree: nothing of it is run.

A name that is built while the code runs is unknown (None), and nothing follows from it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from mmctl.lint.code.answers import Answers, Held
from mmctl.lint.code.names import NamedCode, arguments, called
from mmctl.lint.code.python import code_of
from mmctl.lint.remembered import remembered
from mmctl.lint.repository import Model

MODULE = "triton_python_backend_utils"
MARK = b"InferenceRequest"

MAX_NODES = 60_000
MAX_RUNS = 100
"""Larger code is not followed: it would take too long. A model has a tenth of it."""

Place = tuple[int, int]
"""Line and column, both from 1."""

Names = tuple[str | None, ...] | None
"""The names in a list, None for one that is not known; None for a list that is not."""


@dataclass(frozen=True, slots=True)
class Request:
    """An `InferenceRequest(...)`; `inputs` and `outputs` are the names that it gives and wants."""

    place: Place
    model: str | None
    version: int | None
    inputs: Names
    outputs: Names


@dataclass(frozen=True, slots=True)
class Run:
    """A call of `exec` or `async_exec`. `request` and `decoupled` are None where not known.

    `serial`: it is waited for in a loop over the requests of an `execute`. Of an `async_exec`:
    `lost` when nobody awaits it, `plain` when the `execute` around it is not `async`.
    """

    place: Place
    request: Request | None
    asynchronous: bool
    decoupled: bool | None
    serial: bool
    lost: bool
    plain: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A use of what runs answered. `name` is the output asked for, None where not known or all.

    `checked`: `has_error` is asked, or out of sight it may be. `certain`: where there is no output,
    the code raises at once.
    """

    place: Place
    runs: tuple[Run, ...]
    name: str | None
    checked: bool
    certain: bool


@dataclass(frozen=True, slots=True)
class Calls:
    """`awaits`: `execute` is `async`. `broken`: where and why the file is no Python, else None."""

    requests: tuple[Request, ...] = ()
    runs: tuple[Run, ...] = ()
    readings: tuple[Reading, ...] = ()
    awaits: bool = False
    broken: tuple[Place, str] | None = None


@remembered
def calls_of(model: Model) -> Calls:
    """What a Python model does with others; empty for any other model."""
    code = code_of(model)
    return Calls() if code is None or code.content is None else read_calls(code.content)


def read_calls(content: bytes) -> Calls:
    """The calls in the text of a model.py."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the code's own, as of "\\d"
            tree = ast.parse(content)
    except SyntaxError as error:
        return Calls(broken=((error.lineno or 1, max(error.offset or 1, 1)), error.msg))
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        return Calls(broken=((1, 1), why))
    if MARK not in content or sum(1 for _ in islice(ast.walk(tree), MAX_NODES)) == MAX_NODES:
        return Calls()
    return _Reader(NamedCode(tree)).read()


REQUEST_ARGUMENTS = (
    "request_id",
    "correlation_id",
    "inputs",
    "requested_output_names",
    "model_name",
    "model_version",
)

LOOKS = (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.While)


class _Reader:
    def __init__(self, code: NamedCode) -> None:
        self.code = code
        self.calls = [node for node in code.nodes if isinstance(node, ast.Call)]
        self.modules, self.classes = _imported(code)
        self.trusted: dict[tuple[ast.AST | None, str], bool] = {}
        self.requests = {call: self._request(call) for call in self.calls if self._makes(call)}

    def read(self) -> Calls:
        runs = [call for call in self.calls if self._is_run(call)]
        if len(runs) > MAX_RUNS:
            return Calls(requests=tuple(self.requests.values()))
        answers = Answers(self.code, {call: self._decoupled(call) for call in runs})
        known = {call: self._run(call, answers) for call in runs}
        return Calls(
            requests=tuple(self.requests.values()),
            runs=tuple(known.values()),
            readings=tuple(self._reading(held, answers, known) for held in answers.readings()),
            awaits=any(
                isinstance(node, ast.AsyncFunctionDef) and _requests_of(self.code, node)
                for node in self.code.nodes
            ),
        )

    def _makes(self, call: ast.Call) -> bool:
        match call.func:
            case ast.Attribute(value=ast.Name(id=module), attr="InferenceRequest"):
                return module in self.modules
            case ast.Name(id=name):
                return name in self.classes
        return False

    def _request(self, call: ast.Call) -> Request:
        given = arguments(call, REQUEST_ARGUMENTS)
        if given is None:
            return Request(_place(call), None, None, None, None)
        version = self.code.literal(given["model_version"]) if "model_version" in given else -1
        return Request(
            place=_place(call),
            model=self.code.text(given.get("model_name")),
            version=version if isinstance(version, int) else None,
            inputs=self._names(given.get("inputs"), self._tensor_name),
            outputs=self._names(given.get("requested_output_names"), self.code.text),
        )

    def _names(self, node: ast.expr | None, name_of: Callable[[ast.expr], str | None]) -> Names:
        value = self.code.value(node) if node is not None else None
        if not isinstance(value, (ast.List, ast.Tuple)):
            return None
        if any(isinstance(item, ast.Starred) for item in value.elts):
            return None
        return tuple(name_of(item) for item in value.elts)

    def _tensor_name(self, node: ast.expr) -> str | None:
        value = self.code.value(node)
        if not isinstance(value, ast.Call):
            return None
        if called(value) == "get_input_tensor_by_name":
            given = arguments(value, ("inference_request", "name")) or {}
            return self.code.text(given.get("name"))
        if called(value) in ("Tensor", "from_dlpack"):
            given = arguments(value, ("name", "tensor")) or {}
            return self.code.text(given.get("name"))
        return None

    def _is_run(self, call: ast.Call) -> bool:
        match call.func:
            case ast.Attribute(attr="async_exec"):
                return True
            case ast.Attribute(value=receiver, attr="exec"):
                # Others have an `exec` too, with what to execute: a database's session has.
                return not call.args or self.code.value(receiver) in self.requests
        return False

    def _decoupled(self, call: ast.Call) -> bool | None:
        given = arguments(call, ("decoupled",))
        if given is None:
            return None
        match given.get("decoupled"):
            case None:
                return False
            case ast.Constant(value=bool() as value):
                return value
        return None

    def _run(self, call: ast.Call, answers: Answers) -> Run:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call
        made = self.code.value(receiver)
        asynchronous = called(call) == "async_exec"
        around = self.code.scope(call)
        plain = isinstance(around, ast.FunctionDef) and bool(_requests_of(self.code, around))
        return Run(
            place=_place(call),
            request=self.requests.get(made) if isinstance(made, ast.Call) else None,
            asynchronous=asynchronous,
            decoupled=self._decoupled(call),
            serial=self._is_serial(call),
            lost=asynchronous and answers.lost(call),
            plain=asynchronous and plain,
        )

    def _is_serial(self, call: ast.Call) -> bool:
        around = self.code.scope(call)
        name = _requests_of(self.code, around) if around is not None else ""
        waited = called(call) == "exec"
        inner: ast.AST = call
        for node in self.code.above(call) if name else ():
            if node is around:
                break
            waited = waited or isinstance(node, ast.Await)
            match node:
                case ast.For(iter=values) if inner is not values and _mentions(values, name):
                    return waited
                case ast.ListComp(elt=given) | ast.GeneratorExp(elt=given) if inner is given:
                    if _mentions(node.generators[0].iter, name):
                        return waited
            inner = node
        return False

    def _reading(self, held: Held, answers: Answers, runs: dict[ast.Call, Run]) -> Reading:
        return Reading(
            place=_place(held.node),
            runs=tuple(runs[call] for call in held.runs),
            name=self.code.text(held.name),
            checked=answers.checked(held),
            certain=self._is_certain(held.node),
        )

    def _is_certain(self, node: ast.expr) -> bool:
        """Whether an output is used as if it were there, without a look whether it is."""
        match self.code.parent.get(node):
            case ast.Attribute():
                return called(node) == "get_output_tensor_by_name"
            case ast.Assign(targets=[ast.Name(id=name)]):
                return self._is_trusted(self.code.scope(node), name)
        return False

    def _is_trusted(self, scope: ast.AST | None, name: str) -> bool:
        """Whether a function takes an attribute of a name and never looks whether it is None."""
        if (scope, name) not in self.trusted:
            uses = [self.code.parent[use] for use in self.code.uses(scope, name)]
            self.trusted[scope, name] = any(isinstance(use, ast.Attribute) for use in uses) and (
                not any(isinstance(use, LOOKS) for use in uses)
            )
        return self.trusted[scope, name]


def _imported(code: NamedCode) -> tuple[set[str], set[str]]:
    """The names that stand for the module of the backend, and for its InferenceRequest."""
    modules, classes = set(), set()
    for node in code.nodes:
        match node:
            case ast.Import(names=aliases):
                modules |= {a.asname or a.name for a in aliases if a.name == MODULE}
            case ast.ImportFrom(module=module, names=aliases) if module == MODULE:
                known = {a.asname or a.name for a in aliases if a.name == "InferenceRequest"}
                classes |= known | {"InferenceRequest" for a in aliases if a.name == "*"}
    return modules, classes


def _requests_of(code: NamedCode, node: ast.AST) -> str:
    """The name of the requests, where the function is the `execute` of a model; else ""."""
    match node:
        case (
            ast.FunctionDef(name="execute", args=ast.arguments(args=[_, requests, *_]))
            | ast.AsyncFunctionDef(name="execute", args=ast.arguments(args=[_, requests, *_]))
        ) if isinstance(code.parent.get(node), ast.ClassDef):
            return requests.arg
    return ""


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _place(node: ast.expr) -> Place:
    return node.lineno, node.col_offset + 1
