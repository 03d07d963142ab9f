"""`mmctl cache` on a real store: what is printed, what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cache_servers import empty_store
from fake_triton import FakeTriton, config, running

from mmctl.cache.cache import Cache
from mmctl.cache.counters import KEPT_S, telling
from mmctl.cache.epochs import ALL_MODELS, move_epoch
from mmctl.cache.stores import names
from mmctl.cache.stores.redis import SharedStore, shown_url
from mmctl.cli.app import main
from mmctl.client import Client
from mmctl.triton.repository import DIGEST

COUNTS = {
    "tag": {
        "exact": {"lookups": 100, "hits": 40, "bytes": 1.5e6, "saved_ms": 400.0, "unproven": 1},
        "none": {"lookups": 0, "filled": 60},
    }
}
SEMANTIC = {
    "reply": {
        "semantic": {
            "lookups": 10,
            "hits": 5,
            "probes": 2,
            "disagreements": 1,
            "error_upper_95": 0.0123,
        }
    }
}

Mmctl = Callable[..., int]


@pytest.fixture
def store(store_url: str) -> Iterator[SharedStore]:
    with empty_store(store_url) as shared:
        yield shared


@pytest.fixture
def mmctl(store: SharedStore, workspace: Path, store_url: str) -> Mmctl:
    """`mmctl cache ...` in a workspace whose mmctl.yaml names the store."""
    (workspace / "mmctl.yaml").write_text(f"cache: {{store: '{store_url}'}}\n")
    return lambda *words: main(["-C", str(workspace), "cache", *words])


@pytest.fixture
def counted(store: SharedStore) -> None:
    now = time.time()
    store.run(*telling("one", COUNTS, now - 30), *telling("two", COUNTS, now - 5))
    store.run(*telling("three", SEMANTIC, now))


def test_the_counts_of_all_processes_are_added_up(
    mmctl: Mmctl, counted: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mmctl("stats") == 0
    said = capsys.readouterr().out.splitlines()
    cells = {tuple(line.split()[:2]): line.split() for line in said[1:4]}
    assert cells["tag", "exact"] == [
        *("tag", "exact", "200", "80", "40.0", "%", "0", "0", "0", "3.0", "0.8")
    ]
    assert cells["reply", "semantic"][2:6] == ["10", "5", "50.0", "%"]
    assert "`tag` is unproven: known by its version alone, not by its content" in said
    assert (
        "`reply`, semantic: 1 of 2 probes disagreed; at most 1.23 % of the hits are wrong "
        "(95 % confidence)" in said
    )
    assert said[-1].startswith("3 processes, the last told ")


def test_stats_as_json_for_one_model(
    mmctl: Mmctl, counted: None, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mmctl("stats", "tag", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == 1
    assert said["store"] == shown_url(store_url)
    assert said["processes"] == 3
    assert said["models"].keys() == {"tag"}
    assert said["models"]["tag"]["exact"]["hits"] == 80


def test_stats_for_prometheus(
    mmctl: Mmctl, counted: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mmctl("stats", "--prometheus") == 0
    assert 'mmctl_cache_hits_total{model="tag",level="exact"} 80' in capsys.readouterr().out


def test_counts_of_long_ago_and_what_nobody_has_told_are_left_out(
    mmctl: Mmctl, store: SharedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.run(*telling("old", COUNTS, time.time() - KEPT_S - 1))
    store.run(("HSET", names.COUNTERS, "broken", b'{"at": "never"'))
    assert mmctl("stats") == 0
    assert capsys.readouterr().out == "nothing was counted in the last 24 hours\n"
    assert store.run(("HLEN", names.COUNTERS)) == [0]


def test_a_model_without_counts_is_told_with_the_nearest(
    mmctl: Mmctl, counted: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mmctl("stats", "tagg") == 2
    said = capsys.readouterr().err
    assert "error: nothing was counted for `tagg`" in said
    assert "tag" in said.partition("hint:")[2]


def test_clear_moves_the_epoch_of_the_model(
    mmctl: Mmctl, store: SharedStore, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    move_epoch(store_url, ["tag", "other"])
    before = store.run(("MGET", names.epoch("tag"), names.epoch("other")))[0]
    assert mmctl("clear", "tag") == 0
    assert capsys.readouterr().out == (
        f"the answers of `tag` in {shown_url(store_url)} are out of reach\n"
    )
    after = store.run(("MGET", names.epoch("tag"), names.epoch("other")))[0]
    assert int(after[0]) == int(before[0]) + 1
    assert after[1] == before[1]


def test_clear_without_a_model_is_for_all(
    mmctl: Mmctl, store: SharedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mmctl("clear", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cleared"] is None
    assert store.run(("EXISTS", names.epoch(ALL_MODELS))) == [1]


def test_clearing_a_name_that_nobody_has_used_is_a_mistake(
    mmctl: Mmctl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mmctl("clear", "tagg") == 2
    assert "error: nobody has kept answers of `tagg` in redis://" in capsys.readouterr().err


def test_a_store_can_be_named_where_there_is_no_workspace(
    store: SharedStore,
    store_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    assert main(["-C", str(nowhere), "cache", "stats", "--store", store_url]) == 0
    assert "nothing was counted" in capsys.readouterr().out


def test_without_a_store_one_is_told_how_to_have_one(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), "cache", "stats"]) == 2
    said = capsys.readouterr().err
    assert "error: there is no store that caches share" in said
    assert "mmctl serve --store" in said


@pytest.mark.parametrize("command", ["stats", "clear"])
def test_a_store_that_does_not_answer_is_one_clear_error(
    command: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cache", command, "--store", "redis://:pa55word@127.0.0.1:1/0"]
    assert main(["-C", str(workspace), *words]) == 3
    said = capsys.readouterr().err
    assert said.startswith("error: the store redis://127.0.0.1:1/0 does not answer")
    assert "pa55word" not in said


@pytest.fixture(scope="module")
def triton() -> Iterator[FakeTriton]:
    """It serves version 1 of `echo`, and says what that is made from."""
    served = config("echo", {"text": ("TYPE_STRING", [1])}, max_batch=2)
    served.version_policy.specific.versions.append(1)
    served.parameters[DIGEST].string_value = "1:new 2:another"
    with running(FakeTriton(served)) as fake:
        yield fake


@pytest.fixture
def explain(mmctl: Mmctl, triton: FakeTriton) -> Mmctl:
    """`mmctl cache explain echo -i text=hello ...` for the tenant `shop`."""
    return lambda *words: mmctl(
        *("explain", "echo", "-i", "text=hello", "--target", triton.address, *words)
    )


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    lines = capsys.readouterr().out.splitlines()
    return {line[:10].strip(): line[11:] for line in lines}


def test_explain_says_the_parts_of_the_key_and_shows_no_text(
    explain: Mmctl, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("--tenant", "shop") == 0
    said = told(capsys)
    assert said["model"] == "echo, version 1"
    assert said["content"] == "new"
    assert said["for"] == "tenant shop"
    assert said["input"].startswith("text  BYTES [1, 1] sha256 ")
    assert said["outputs"] == "all"
    assert said["caches"] == "may answer it"
    assert said["store"] == f"{shown_url(store_url)} has no answer"
    assert "hello" not in str(said)


def test_explain_finds_what_a_client_has_kept(
    explain: Mmctl, triton: FakeTriton, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        Cache(tenant="shop", store=store_url) as cache,
        Client(triton.address, cache=cache) as client,
    ):
        client.infer("echo", {"text": ["hello"]})
    assert explain("--tenant", "shop") == 0
    assert "has the answer, " in told(capsys)["store"]
    assert explain("--tenant", "another") == 0
    assert "has no answer" in told(capsys)["store"]


def test_explain_needs_to_know_whose_answers_are_meant(
    explain: Mmctl, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain() == 2
    assert "hint: pass `--tenant NAME`" in capsys.readouterr().err
    (workspace / "mmctl.yaml").write_text("cache: {models: {echo: {shared: true}}}\n")
    assert explain() == 0
    said = told(capsys)
    assert said["for"] == "shared"
    assert said["store"] == "none is set: each process has its own answers"


def test_explain_says_why_no_cache_answers(
    explain: Mmctl, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "mmctl.yaml").write_text("cache: {models: {echo: off}}\n")
    assert explain("--tenant", "shop") == 0
    assert told(capsys)["caches"] == "none may answer it: the cache is off for this model"


def test_explain_tells_a_wrong_input_as_infer_does(
    mmctl: Mmctl, triton: FakeTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-i", "txt=hello", "--target", triton.address, "--tenant", "shop"]
    assert mmctl("explain", "echo", *words) == 2
    assert "`txt`" in capsys.readouterr().err
