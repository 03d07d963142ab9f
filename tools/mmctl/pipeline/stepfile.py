"""steps.py read as a syntax tree: which functions there are, what they take and return."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from mmctl.diagnostics import Position
from mmctl.pipeline.findings import STEP_FILE, Report
from mmctl.pipeline.source import COMMON, PipelineSource, SourceText

STEPS = "steps"
PYTHON = (3, 10)
"""The oldest Python that a Triton container runs steps with."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The keys of one `return {...}` that are written out, and where it stands."""

    keys: tuple[str, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class Function:
    """A step function. `parameters` None: anything goes (**kwargs, or not a plain `def`). Else
    those that can be given by name; `needed` must be.

    `returned` lists only returns whose keys can be read; `silent` means that it returns nothing.
    """

    name: str
    position: Position
    parameters: tuple[str, ...] | None = None
    needed: tuple[str, ...] = ()
    returned: tuple[Returned, ...] = ()
    silent: bool = False


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The statement that gives a name its value, or an import that leads out of the workspace, or
    in a circle. `name` is the one that the value has there.
    """

    name: str
    statement: ast.stmt
    path: str

    @property
    def definition(self) -> ast.FunctionDef | None:
        """A plain `def`: a decorator may have made anything of it."""
        match self.statement:
            case ast.FunctionDef(decorator_list=[]) as plain:
                return plain
            case _:
                return None


class StepFiles:
    """The Python files of one pipeline, parsed once, with a finding for each that is broken."""

    def __init__(self, source: PipelineSource, report: Report) -> None:
        self._texts = {**source.common, **source.modules}
        self._own = source.modules
        self._report = report
        self._trees: dict[str, ast.Module | None] = {}

    @property
    def has_steps(self) -> bool:
        return STEPS in self._texts

    def tree(self, module: str) -> ast.Module | None:
        """None when there is no such file, or it is not Python (a finding says so)."""
        if module not in self._texts:
            return None
        if module not in self._trees:
            self._trees[module] = _parse(self._texts[module], self._report)
        return self._trees[module]

    @property
    def is_readable(self) -> bool:
        return all(self.tree(module) is not None for module in self._imported_modules())

    def shipped(self) -> dict[str, str]:
        """steps.py and all that it imports of the workspace, by path beside the runner."""
        return {
            f"{module}.py" if module in self._own else f"{COMMON}/{module}.py": self._texts[
                module
            ].text
            for module in self._imported_modules()
        }

    def _imported_modules(self) -> list[str]:
        found: set[str] = set()
        waiting = {STEPS}
        while waiting:
            module = waiting.pop()
            if module in self._texts and module not in found:
                found.add(module)
                waiting |= _imports(self.tree(module))
        return sorted(found)

    def function(self, name: str) -> Function | None:
        """The function that `name` means in steps.py; None when there is nothing of that name."""
        found = self._meaning(name, STEPS)
        if found is None:
            return None
        if (definition := found.definition) is not None:
            return _function_of(definition, found.path)
        return Function(found.name, _position(found.statement, found.path))

    def definition(self, name: str) -> ast.FunctionDef | None:
        """The `def` that `name` means in steps.py; None when it is anything else."""
        found = self._meaning(name, STEPS)
        return None if found is None else found.definition

    def function_names(self) -> list[str]:
        """What steps.py defines itself, for hints."""
        tree = self.tree(STEPS)
        return [s.name for s in tree.body if isinstance(s, ast.FunctionDef)] if tree else []

    def _meaning(self, name: str, *modules: str) -> _Meaning | None:
        """What `name` means at the top of the last of `modules`, imports followed. The others lead
        there, from steps.py on.
        """
        *_, module = modules
        tree = self.tree(module)
        for statement in reversed(tree.body) if tree else ():
            match statement:
                case ast.ImportFrom(module=str() as origin, level=0):
                    for alias in statement.names:
                        if name == (alias.asname or alias.name):
                            return self._imported(alias.name, origin, statement, modules)
                        if alias.name == "*":
                            found_there = self._imported(name, origin, statement, modules)
                            if found_there is not None:
                                return found_there
                case _ if name in _bound(statement):
                    return _Meaning(name, statement, self._texts[module].path)
        return None

    def _imported(
        self, name: str, origin: str, statement: ast.stmt, modules: tuple[str, ...]
    ) -> _Meaning | None:
        origin = _bare(origin)
        if origin in self._texts and origin not in modules:
            return self._meaning(name, *modules, origin)
        return _Meaning(name, statement, self._texts[modules[-1]].path)


def _parse(source: SourceText, report: Report) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(source.text, feature_version=PYTHON)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        column = getattr(error, "offset", None) or 1
        message = getattr(error, "msg", None) or str(error)
        report.add_at(Position(source.path, line, column), STEP_FILE, f"not Python 3.10: {message}")
        return None


def _imports(tree: ast.Module | None) -> set[str]:
    """Modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            found |= {_bare(alias.name) for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(_bare(node.module))
            if node.module == COMMON:
                found |= {alias.name for alias in node.names}
    return found


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement gives to its module, in whatever way."""
    found: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        match waiting.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name.partition(".")[0])
            case node:
                waiting += ast.iter_child_nodes(node)
    return found


def _bare(module: str) -> str:
    """`common.words` and `words` are the same module."""
    return module.removeprefix(f"{COMMON}.")


def _function_of(function: ast.FunctionDef, path: str) -> Function:
    arguments = function.args
    plain = [a.arg for a in arguments.args]
    optional = plain[max(0, len(plain) - len(arguments.defaults)) :]
    keyword = [a.arg for a in arguments.kwonlyargs]
    optional += [n for n, d in zip(keyword, arguments.kw_defaults, strict=True) if d is not None]
    returns = list(returns_of(function))
    return Function(
        function.name,
        _position(function, path),
        None if arguments.kwarg else (*plain, *keyword),
        tuple(name for name in (*plain, *keyword) if name not in optional),
        tuple(_returned(statement, path) for statement in returns if _keys(statement) is not None),
        silent=all(statement.value is None for statement in returns),
    )


def returns_of(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """Return statements of the function itself, those of functions inside it left out."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Return):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _keys(statement: ast.Return) -> tuple[str, ...] | None:
    """Keys of a returned dict display; None when they are not written out."""
    if not isinstance(statement.value, ast.Dict):
        return None
    keys = [k.value if isinstance(k, ast.Constant) else None for k in statement.value.keys]
    return tuple(k for k in keys if isinstance(k, str)) if None not in keys else None


def _returned(statement: ast.Return, path: str) -> Returned:
    return Returned(_keys(statement) or (), _position(statement, path))


def _position(node: ast.stmt, path: str) -> Position:
    return Position(path, node.lineno, node.col_offset + 1)
