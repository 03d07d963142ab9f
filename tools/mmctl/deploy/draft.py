"""The steps of a deployment so far, and what the target will hold after them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mmctl.deploy.state import (
    Files,
    HeldModel,
    ServerState,
    Share,
    TreeState,
    Versions,
    Wanted,
    calls_of,
    config_of,
    is_config,
    is_ensemble,
    is_plan,
    said_digests,
    settle,
    with_digests,
    with_share,
)
from mmctl.deploy.steps import Copy, Load, Move, Plan, Remove, Step, Try, Why
from mmctl.errors import Refused
from mmctl.triton.pbtxt import pin_config
from mmctl.triton.repository import CONFIG, NEXT
from mmctl.triton.sharing import share_config


class Draft:
    """A target, as the steps change it: `now` is what it holds after them."""

    def __init__(self, tree: TreeState, server: ServerState) -> None:
        self.steps: list[Step] = []
        self.now = dict(tree.models)
        self._ready = {name: set(versions) for name, versions in server.ready.items()}
        self._torn = tree.torn
        self._loaded = self._bytes_loaded()
        self._begin = self._most = self._loaded

    def live(self, name: str) -> Versions:
        return self.now[name].live if name in self.now else ()

    def pinned(self, name: str, *, without: Iterable[str] = ()) -> set[int]:
        """Versions of a model that others call."""
        return {
            version
            for caller, model in self.now.items()
            if caller not in without
            for callee, version in called_by(model)
            if callee == name
        }

    def clear_up(self) -> None:
        """After a deploy that was cut short the server learns what the tree says, callees first.

        A version that it did not come to load and that nobody calls is left out: it may be the
        one that would not have loaded. Candidates go once nobody calls them.
        """
        if self._torn:
            for name in callees_first(self.now):
                model = self.now[name]
                if model.files and not self._is_spent(name):
                    needed = self.pinned(name) | self._ready.get(name, set())
                    live = tuple(v for v in model.live if v in needed) or model.live
                    self._load(name, _with_policy(model.files, live), live, "resume")
        self.sweep()

    def sweep(self, *, shares: bool = False) -> None:
        """Remove candidates that nobody calls, callers first; with `shares` those, too, that get
        one of the requests.
        """
        for name in reversed(callees_first(self.now)):
            if self._is_spent(name) or (shares and self.now[name].share):
                self.remove(name, keep=False)

    def _is_spent(self, name: str) -> bool:
        """Whether it is a candidate that nobody calls, neither a model nor a client."""
        is_candidate = name.endswith(NEXT) and not self.now[name].share
        return is_candidate and not self.pinned(name)

    def leave(self, names: Iterable[str]) -> None:
        """Remove those of `names`, callers first, that nobody calls who stays."""
        for name in names:
            if self.now[name].files and not self.pinned(name):
                self.remove(name, keep=True)

    def differs(self, wanted: Wanted, final: Versions) -> bool:
        """Whether the tree or the server is not as it shall be."""
        model = self.now.get(wanted.name)
        if model is None or model.live != final:
            return True
        if any(v not in model.versions or model.versions[v].kept for v in final):
            return True
        return not self._is_served(wanted.name, self._settled(wanted, final, []), final)

    def fits_beside(self, wanted: Wanted) -> bool:
        """Whether one config serves the new version and the old ones that are called."""
        called = self.pinned(wanted.name) & {*self.live(wanted.name)}
        try:
            self._settled(wanted, tuple(sorted({wanted.version, *called})), [])
        except Refused:
            return False
        return not is_ensemble(wanted.files)

    def refuse_stale(self, wanted: Wanted) -> None:
        """An ensemble of the user's own whose answers Triton caches, and whose callees move while
        its number stays.
        """
        if wanted.version not in self.live(wanted.name) or not config_of(wanted.files).steps:
            return
        there = self.now[wanted.name]
        calls = set(calls_of(self._settled(wanted, there.live, []), ()))
        is_moved = calls != set(calls_of(there.files, ()))
        if config_of(wanted.files).response_cache and is_moved:
            raise Refused(
                f"`{wanted.name}`: its number stays {wanted.version} while what it calls moves, so "
                "Triton's cache would answer for the old versions",
                hint=f"rename its version folder to {wanted.version + 1}",
            )

    def copy(self, wanted: Wanted, name: str = "") -> None:
        """Bring the version folder, under its own name or that of its candidate."""
        name = name or wanted.name
        there = self.now.get(name, HeldModel({}))
        known = there.versions.get(wanted.version)
        if known is not None and not known.kept:
            return
        self.steps.append(Copy(name, wanted.version, wanted.source, wanted.held.bytes))
        versions = {**there.versions, wanted.version: replace(wanted.held, kept=False)}
        self.now[name] = HeldModel(versions, there.files)

    def candidate(
        self,
        wanted: Wanted,
        stand_ins: Sequence[str],
        *,
        is_tried: bool,
        stays: bool,
        share: Share | None = None,
    ) -> None:
        """Load a model under the name of its candidate, and try it there before it gets a `share`
        of the requests.
        """
        name = wanted.name + NEXT
        if others := self.pinned(name) - {wanted.version}:
            raise Refused(
                f"`{name}` {min(others)} still stands in for `{wanted.name}`, since a deploy was "
                "cut short",
                hint="run `mmctl rollback` first, or deploy what was being deployed",
            )
        self.copy(wanted, name)
        live = (wanted.version,)
        files = settle(wanted, wanted.files, live, name=name, stand_ins=stand_ins)
        files = with_digests(files, {wanted.version: wanted.held.key})
        there = with_share(self.now[name].files, None)
        if self._torn or not (there and _same_files(there, files) and self._is_ready(name, live)):
            self._load(name, files, live, "candidate")
            if is_tried:
                self.steps.append(Try(wanted.name, wanted.samples))
        if share and self.now[name].share != share:
            self._load(name, with_share(files, share), live, share.kind)
        if not stays and not self.pinned(name):
            self.remove(name, keep=False)

    def serve(self, wanted: Wanted, live: Versions, stand_ins: Sequence[str]) -> None:
        files = self._settled(wanted, live, stand_ins)
        there = self.now.get(wanted.name, HeldModel({}))
        if self._is_served(wanted.name, files, live):
            return
        self._load(wanted.name, files, live, _why(wanted.version, there, live, files))

    def retire(self, wanted: Wanted, final: Versions, stand_ins: Sequence[str]) -> None:
        """Take old versions out of service: what they call may go next."""
        if self.live(wanted.name) != final:
            self.serve(wanted, final, stand_ins)

    def remove(self, name: str, *, keep: bool) -> None:
        model = self.now.pop(name)
        if keep:
            kept = {v: replace(held, kept=True) for v, held in model.versions.items()}
            self.now[name] = HeldModel(kept)
        self.steps.append(Remove(name, keep, model.files or None))
        self._loaded = self._bytes_loaded()

    def plan(self, tree: TreeState, wanted: Iterable[Wanted], warnings: Sequence[str]) -> Plan:
        names = {w.name for w in wanted} | set(tree.models) | set(self.now)
        before = {name: model.live for name, model in tree.models.items()}
        moves = {
            name: Move(was, will, self._keys(name, will))
            for name in sorted(names)
            if (was := before.get(name, ())) != (will := self.live(name))
        }
        return Plan(tuple(self.steps), moves, tuple(warnings), self._most - self._begin)

    def _keys(self, name: str, live: Versions) -> dict[int, str]:
        return {version: self.now[name].versions[version].key for version in live}

    def _load(self, name: str, files: Files, live: Versions, why: Why) -> None:
        there = self.now.get(name, HeldModel({}))
        before = there.files or None
        adds = sum(there.versions[v].bytes for v in live if self._is_moved(there, files, v))
        self._most = max(self._most, self._loaded + adds)
        plans = {path: text for path, text in there.files.items() if is_plan(path)}
        self.now[name] = HeldModel(there.versions, {**plans, **files})
        self._loaded = self._bytes_loaded()
        self._ready[name] = {*live}
        # Callers that are down have their turn later; after a deploy that was cut short, all.
        callers = () if why == "resume" else self._ready_callers(name)
        ready = {n: self.now[n].live for n in (name, *callers)}
        self.steps.append(Load(name, live, files, before, ready, why, adds))

    def _ready_callers(self, name: str) -> list[str]:
        return [c for c in _callers(self.now, name) if self._is_ready(c, self.now[c].live)]

    def _settled(self, wanted: Wanted, live: Versions, stand_ins: Sequence[str]) -> Files:
        """Raises Refused when no config serves these versions together."""
        files = dict(wanted.files)
        others = [v for v in live if v != wanted.version]
        if others:
            held = self.now[wanted.name].versions
            texts = [held[v].config for v in others if held[v].config]
            is_run = wanted.held.runner and all(held[v].runner for v in others)
            for path in filter(is_config, wanted.files):
                files[path] = _shared(wanted, path, texts, is_run, others)
        return self._proven(wanted, settle(wanted, files, live, stand_ins=stand_ins), live)

    def _proven(self, wanted: Wanted, files: Files, live: Versions) -> Files:
        """`files` whose configs tell the build keys of these versions. To a config of which a
        version stays as it is nothing is added: for another parameter Triton loads it anew.
        """
        there = self.now.get(wanted.name, HeldModel({}))
        keys = {v: held.key for v, held in there.versions.items() if v in live}
        keys |= {wanted.version: wanted.held.key}
        said = said_digests(there.files)
        kept = with_digests(files, said)
        stay = {*there.live} & {*live}
        is_right = all(said.get(v, keys[v]) == keys[v] for v in stay)
        if stay and is_right and not any(self._is_moved(there, kept, v) for v in stay):
            return kept
        return with_digests(files, keys)

    def _is_served(self, name: str, files: Files, live: Versions) -> bool:
        """Whether a model is served with these files already, and ready."""
        there = self.now.get(name, HeldModel({}))
        is_same = there.live == live and _same_files(there.files, files)
        return is_same and self._is_ready(name, live)

    def _is_ready(self, name: str, live: Versions) -> bool:
        return self._ready.get(name) == {*live}

    def _is_moved(self, there: HeldModel, files: Files, version: int) -> bool:
        """Whether a version is loaded anew: it is new, or what it is loaded with has changed."""
        if version not in there.live:
            return True
        old, new = (_without_policy(f[CONFIG]) for f in (there.files, files))
        plan = f"{version}/plan.json"
        return old != new or there.files.get(plan) != files.get(plan, there.files.get(plan))

    def _bytes_loaded(self) -> int:
        return sum(m.versions[v].bytes for m in self.now.values() for v in m.live)


def _with_policy(files: Files, live: Versions) -> Files:
    return {
        path: pin_config(text.decode(), where=path, versions=live, calls={}).encode()
        if is_config(path)
        else text
        for path, text in files.items()
    }


def _without_policy(config: bytes) -> str:
    return pin_config(config.decode(), where=CONFIG, versions=(1,), calls={})


def _same_files(there: Files, wanted: Files) -> bool:
    """Plans of other versions are not compared: they stay as they are."""
    settings = {path for path in there if not is_plan(path)} | set(wanted)
    return all(there.get(path) == wanted.get(path) for path in settings)


def _why(version: int, there: HeldModel, live: Versions, files: Files) -> Why:
    before = there.live
    if not before:
        return "serve"
    if version not in before:
        return "beside" if {*before} & {*live} else "switch"
    if before != live:
        return "retire" if {*live} < {*before} else "beside"
    if any(NEXT in name for name, _ in called_by(there)):
        return "settle"
    return "again" if _same_files(there.files, files) else "settings"


def _shared(
    wanted: Wanted, path: str, others: Sequence[str], runner: bool, versions: Iterable[int]
) -> bytes:
    text = wanted.files[path].decode()
    try:
        return share_config(text, others, runner=runner, where=path).encode()
    except ValueError as error:
        old = " and ".join(map(str, versions))
        raise Refused(
            f"`{wanted.name}`: version {wanted.version} cannot be served beside {old}, which is "
            f"still called: {error}",
            hint="move all that calls it together, or give the new one another name",
        ) from error


def _callers(now: Mapping[str, HeldModel], name: str) -> Iterator[str]:
    """All that call a model, directly or through others."""
    found = {name}
    waiting = [name]
    while waiting:
        callee = waiting.pop()
        for caller, model in now.items():
            if caller not in found and any(c == callee for c, _ in called_by(model)):
                found.add(caller)
                waiting.append(caller)
                yield caller


def callees_first(now: Mapping[str, HeldModel]) -> tuple[str, ...]:
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in now or name in found:
            return
        for callee, _ in sorted(called_by(now[name])):
            visit(callee)
        found[name] = None

    for name in sorted(now):
        visit(name)
    return tuple(found)


def called_by(model: HeldModel) -> Iterator[tuple[str, int]]:
    yield from calls_of(model.files, model.live) if model.files else ()
