"""What every served tree does, in a local folder and in object stores over HTTP alike."""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mmctl.deploy.ledger import entry
from mmctl.deploy.object_tree import ObjectTree
from mmctl.deploy.state import HeldModel
from mmctl.deploy.steps import Move
from mmctl.deploy.store import Store, read_url
from mmctl.deploy.target import Tree
from mmctl.deploy.tree import LocalTree
from mmctl.errors import InputError, Refused, WorldError

CONFIG = b'name: "m" backend: "python" version_policy { specific { versions: [ 1 ] } }\n'
OTHER = CONFIG.replace(b"1 ]", b"2 ]")
_numbers = count(1)


store_at = cache(Store)


def object_tree(address: str, tmp_path: Path, place: str, **options: Any) -> ObjectTree:
    found = read_url(f"s3://http://{address}/bucket/{place}")
    return ObjectTree(store_at(found), found.place, tmp_path / "turn.lock", **options)


@pytest.fixture
def in_s3(s3_address: str, tmp_path: Path) -> ObjectTree:
    return object_tree(s3_address, tmp_path, f"folder{next(_numbers)}/models")


@pytest.fixture
def in_gs(gs_address: str, tmp_path: Path) -> ObjectTree:
    found = read_url(f"gs://bucket/folder{next(_numbers)}/models")
    return ObjectTree(store_at(found), found.place, tmp_path / "turn.lock")


@pytest.fixture(params=["local", "s3", "gs"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if request.param != "local":
        found: ObjectTree = request.getfixturevalue(f"in_{request.param}")
        return found
    (tmp_path / "served").mkdir()
    return LocalTree(tmp_path / "served")


def source(tmp_path: Path, version: int, **files: str) -> str:
    """A version folder as a build leaves it."""
    folder = tmp_path / "built" / str(version)
    (folder / "data").mkdir(parents=True)
    manifest = {"schema": 1, "version": version, "build_key": f"key{version}", "calls": {"a": 7}}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "config": "whole"}))
    (folder / "data" / "a [1].txt").write_text("deep")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return str(folder)


def serve(tree: Tree, tmp_path: Path) -> HeldModel:
    tree.copy("m", 1, source(tmp_path, 1, model_py="one", plan_json="{}"))
    tree.write("m", {"config.pbtxt": CONFIG, "labels/en.txt": b"cat\n", "1/plan.json": b"{}"})
    return tree.read().models["m"]


def test_an_empty_tree_holds_nothing(tree: Tree) -> None:
    state = tree.read()
    assert (state.models, state.keys, state.torn, list(tree.ledger())) == ({}, {}, False, [])


def test_what_was_written_is_read(tree: Tree, tmp_path: Path) -> None:
    model = serve(tree, tmp_path)
    assert model.live == (1,)
    assert model.files["labels/en.txt"] == b"cat\n"
    assert set(model.files) == {"config.pbtxt", "labels/en.txt", "1/plan.json"}
    held = model.versions[1]
    assert (held.key, held.config, held.calls, held.runner) == ("key1", "whole", {"a": 7}, True)
    built = [path for path in (tmp_path / "built" / "1").rglob("*") if path.is_file()]
    assert held.bytes == sum(path.stat().st_size for path in built)
    assert tree.plan_of("m", 1) == b"{}"


def test_everything_may_be_done_twice(tree: Tree, tmp_path: Path) -> None:
    before = serve(tree, tmp_path)
    tree.copy("m", 1, str(tmp_path / "nowhere"))
    tree.write("m", before.files)
    assert tree.read().models["m"] == before
    for _ in range(2):
        tree.keep("m")
    kept = tree.read().models["m"]
    for _ in range(2):
        tree.bring_back("m")
        tree.write("m", before.files)
    assert tree.read().models["m"] == before
    assert kept.versions[1].kept
    for _ in range(2):
        tree.drop("m", 1)
        tree.forget("m", 1)
        tree.write("m", {})
        tree.mend()
        tree.erase("m")
    assert tree.read().models == {}


def test_files_that_are_no_more_wanted_go_and_the_source_stays_as_it_is(
    tree: Tree, tmp_path: Path
) -> None:
    serve(tree, tmp_path)
    tree.write("m", {"config.pbtxt": OTHER, "1/plan.json": b"other", "9/plan.json": b"none"})
    model = tree.read().models["m"]
    assert dict(model.files) == {"config.pbtxt": OTHER, "1/plan.json": b"other"}
    assert set(model.versions) == {1}
    assert (tmp_path / "built" / "1" / "plan.json").read_text() == "{}"


def test_without_files_nothing_is_live_and_without_versions_nothing_is_there(
    tree: Tree, tmp_path: Path
) -> None:
    serve(tree, tmp_path)
    tree.write("m", {})
    assert tree.read().models["m"].live == ()
    tree.drop("m", 1)
    assert tree.read().models == {}


def test_kept_versions_lie_beside_the_tree_and_can_be_copied_back(
    tree: Tree, tmp_path: Path
) -> None:
    serve(tree, tmp_path)
    tree.keep("m")
    kept = tree.read().models["m"]
    assert kept.versions[1].kept
    assert not kept.files
    tree.copy("m", 1, tree.source_of("m", 1))
    back = tree.read().models["m"].versions[1]
    assert (back.kept, back.bytes) == (False, kept.versions[1].bytes)
    tree.drop("m", 1)
    assert tree.read().models["m"].versions[1].kept
    tree.forget("m", 1)
    assert tree.read().models == {}


def test_erase_leaves_what_is_kept_of_another(tree: Tree, tmp_path: Path) -> None:
    serve(tree, tmp_path)
    tree.copy("m__next", 1, str(tmp_path / "built" / "1"))
    tree.erase("m__next")
    assert set(tree.read().models) == {"m"}


def test_the_content_is_the_build_key_of_what_mmctl_did_not_make(
    tree: Tree, tmp_path: Path
) -> None:
    for name, text in (("a", "same"), ("b", "same"), ("c", "other")):
        folder = tmp_path / "own" / name
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(text)
        (folder / "manifest.json").write_text("[]")
        tree.copy(name, 1, str(folder))
    models = tree.read().models
    keys = [models[name].versions[1].key for name in "abc"]
    assert keys[0] == keys[1] != keys[2]
    (tmp_path / "local").mkdir()
    local = LocalTree(tmp_path / "local")
    local.copy("a", 1, str(tmp_path / "own" / "a"))
    assert local.read().models["a"].versions[1].key == keys[0]


def test_the_ledger_grows_by_lines_and_tells_the_keys(tree: Tree) -> None:
    tree.log(entry("deploy", {"m": Move((1,), (2,), {2: "key2"})}, "begun"))
    tree.log(entry("deploy", {"m": Move((1,), (2,), {2: "key2"})}, "failed", reason="ü"))
    assert [line["outcome"] for line in tree.ledger()] == ["begun", "failed"]
    assert tree.read().keys == {"m": {2: "key2"}}


def test_a_deployment_that_was_cut_short_is_known(tree: Tree) -> None:
    tree.tear("one step")
    assert tree.read().torn
    tree.mend()
    assert not tree.read().torn


def test_one_at_a_time(tree: Tree) -> None:
    waited: list[str] = []
    for _ in range(2):
        with tree.alone(lambda: waited.append("waited")):
            tree.log(entry("prune", {}, "done"))
    assert waited == []


def names_in(tree: ObjectTree) -> set[str]:
    """All objects, by what follows the folder that the tree is in."""
    return set(tree.store.list(tree.root.rpartition("/")[0]))


class Cut(Exception):
    """The process dies here."""


def cut_at(tree: ObjectTree, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The store does so many writes and deletions of this tree, and then no more."""
    done = 0

    def cutting(name: str) -> None:
        real = getattr(Store, name)

        def do(*args: Any) -> Any:
            nonlocal done
            paths = args[1] if not isinstance(args[1], str) else [args[1]]
            items = list(paths.items() if isinstance(paths, dict) else paths)
            for item in items:
                done += 1
                if done > step:
                    raise Cut
                one = dict([item]) if isinstance(paths, dict) else [item]
                real(args[0], one if name != "write" else item, *args[2:])

        monkeypatch.setattr(Store, name, do)

    for name in ("write", "upload", "copy", "delete"):
        cutting(name)


STEPS = 60


@pytest.mark.parametrize("what", ["copy", "keep", "erase"])
def test_a_version_folder_is_whole_or_absent_wherever_the_process_dies(
    in_s3: ObjectTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """And doing it again brings it to its end."""
    tree = in_s3
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "model.py").write_text("one")
    (tmp_path / "small" / "manifest.json").write_text('{"build_key": "key1"}')
    origin = str(tmp_path / "small")

    def prepare() -> None:
        if what != "copy":
            tree.copy("m", 1, origin)

    def act() -> None:
        if what == "copy":
            tree.copy("m", 1, origin)
        else:
            getattr(tree, what)("m")

    prepare()
    whole = tree.read().models["m"].versions[1].bytes if what != "copy" else None
    for step in range(STEPS):
        with monkeypatch.context() as patch:
            cut_at(tree, patch, step)
            try:
                act()
                done = True
            except Cut:
                done = False
        for model in tree.read().models.values():
            sizes = {held.bytes for held in model.versions.values()}
            whole = whole or next(iter(sizes), None)
            assert sizes <= {whole}
            assert sizes or what != "keep"
        if done:
            break
        tree.tear("the next one")
        tree.mend()
        act()
        tree.forget("m", 1)
        prepare()
    else:
        raise AssertionError("it never came to its end")
    assert not [name for name in names_in(tree) if ".half/" in name]


def test_the_config_that_names_a_version_comes_after_all_of_its_files(
    in_s3: ObjectTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = Store.write
    monkeypatch.setattr(
        Store, "write", lambda store, path, text: (seen.append(path), real(store, path, text))
    )
    serve(in_s3, tmp_path)
    ours = [path for path in seen if path.startswith(f"{in_s3.root}/")]
    assert ours[-1].endswith("/m/config.pbtxt")
    assert set(in_s3.store.list(f"{in_s3.root}/m")) == {
        "1/manifest.json",
        "1/model.py",
        "1/plan.json",
        "1/data/a [1].txt",
        "config.pbtxt",
        "labels/en.txt",
    }


def test_each_config_is_of_a_later_second_than_all_that_was_there(
    in_s3: ObjectTree, tmp_path: Path
) -> None:
    """Triton tells a change by the newest second; two in the same one are one to it."""
    serve(in_s3, tmp_path)
    seconds = []
    for config in (OTHER, CONFIG):
        in_s3.write("m", {"config.pbtxt": config, "1/plan.json": b"{}"})
        seconds.append(in_s3.store.second(f"{in_s3.root}/m/config.pbtxt"))
    assert seconds == sorted(set(seconds))
    begin = time.monotonic()
    in_s3.write("m", {"config.pbtxt": CONFIG, "1/plan.json": b"{}"})
    assert time.monotonic() - begin < 0.9, "nothing was new"
    assert not [name for name in names_in(in_s3) if name.endswith(".clock")]


def test_what_others_have_put_there_is_read_and_names_that_lead_elsewhere_are_not(
    in_s3: ObjectTree,
) -> None:
    for path in ("own/1/model.py", "own/config.pbtxt", "../up/1/x", ".git/1/x", "own/2/.hidden"):
        in_s3.store.write(f"{in_s3.root}/{path}", CONFIG)
    for path in ("stray.txt", "own/../../up", "own/3/../../../x", f"{'n' * 256}/1/model.py"):
        in_s3.store.write(f"{in_s3.root}/{path}", b"")
    models = in_s3.read().models
    assert list(models) == ["own"]
    assert models["own"].live == (1,)
    assert set(models["own"].files) == {"config.pbtxt"}
    assert set(models["own"].versions) == {1, 2}


def test_the_ledger_spares_reading_what_mmctl_did_not_make(
    in_s3: ObjectTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_s3.store.write(f"{in_s3.root}/own/1/model.py", b"large")
    in_s3.log(entry("deploy", {"own": Move((), (1,), {1: "known"})}, "done"))
    monkeypatch.setattr(Store, "sha256", lambda *_: pytest.fail("it was read"))
    assert in_s3.read().models["own"].versions[1].key == "known"


def test_the_lock_of_another_is_told_and_stays(
    s3_address: str, tmp_path: Path, in_s3: ObjectTree
) -> None:
    place = in_s3.root.partition("/")[2]
    (tmp_path / "b").mkdir()
    other = object_tree(s3_address, tmp_path / "b", place, wait_s=0.3)
    waited: list[str] = []
    told = pytest.raises(Refused, match=r"models\.lock: .* deploys to it since 20")
    with in_s3.alone(lambda: None), told as caught, other.alone(lambda: waited.append("waited")):
        pass
    assert "remove this object" in str(caught.value.hint)
    assert waited == ["waited"]
    with other.alone(lambda: pytest.fail("nobody has it")):
        pass


def test_a_lock_that_a_killed_process_of_ours_left_is_taken_over(
    s3_address: str, tmp_path: Path, in_s3: ObjectTree
) -> None:
    with in_s3.alone(lambda: None):
        left = in_s3.store.read(in_s3.lock)
    assert left is not None
    in_s3.store.write(in_s3.lock, left)
    again = object_tree(s3_address, tmp_path, in_s3.root.partition("/")[2], wait_s=0)
    with again.alone(lambda: pytest.fail("it is ours")):
        assert again.store.read(again.lock) not in (None, left)
    assert again.store.read(again.lock) is None


def test_the_environment_names_the_server_as_for_other_tools(
    s3_address: str, monkeypatch: pytest.MonkeyPatch, in_s3: ObjectTree
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_address}")
    in_s3.mend()
    in_s3.tear("here")
    assert Store(read_url(f"s3://{in_s3.root}")).read(in_s3.torn) == b"here\n"


def test_a_bucket_that_is_not_there_is_one_clear_error(s3_address: str, tmp_path: Path) -> None:
    found = read_url(f"s3://http://{s3_address}/nobody/models")
    tree = ObjectTree(Store(found), found.place, tmp_path / "turn.lock")
    with pytest.raises(WorldError, match=r"s3://nobody/models\.ledger\.jsonl: .*does not exist"):
        tree.log({})


@pytest.mark.parametrize(
    ("url", "scheme", "place", "endpoint"),
    [
        ("s3://bucket/models", "s3", "bucket/models", ""),
        ("s3://bucket/a/b-c/", "s3", "bucket/a/b-c", ""),
        ("s3://http://127.0.0.1:9000/bucket/m", "s3", "bucket/m", "http://127.0.0.1:9000"),
        ("s3://https://minio.lan:443/bucket/m", "s3", "bucket/m", "https://minio.lan:443"),
        ("s3://minio.lan:9000/bucket/m", "s3", "bucket/m", "http://minio.lan:9000"),
        ("gs://bucket/models", "gs", "bucket/models", ""),
    ],
)
def test_a_repository_is_written_as_triton_takes_it(
    url: str, scheme: str, place: str, endpoint: str
) -> None:
    found = read_url(url)
    assert (found.scheme, found.place, found.endpoint) == (scheme, place, endpoint)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://",
        "s3://bucket//models",
        "s3://https://minio.lan/bucket/models",
        "gs://http://h:1/bucket/models",
        "as://account/container/models",
        "http://h/models",
    ],
)
def test_what_is_no_place_for_a_repository_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="no place for a model repository"):
        read_url(url)


def test_a_store_whose_client_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.delitem(import_module("fsspec.registry")._registry, "gs", raising=False)
    with pytest.raises(InputError, match="needs the `gs` extra") as caught:
        Store(read_url("gs://bucket/models"))
    assert caught.value.hint == "run `pip install 'mmctl[gs]'`"
