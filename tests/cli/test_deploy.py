"""`mmctl deploy` and its sisters where there is nothing to deploy to, and how they tell a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deploy_worlds import leaf, memory_target, wanted

from mmctl.cli.app import main
from mmctl.cli.deploy import parse_share, render_comparison, render_plan, render_standings
from mmctl.client.status import Counts
from mmctl.deploy.canary import Candidate
from mmctl.deploy.comparison import Comparison, Disagreement, Since
from mmctl.deploy.deployment import Deployment, Place, Standing, carry_out, store_of
from mmctl.deploy.gather import Gathered
from mmctl.deploy.ledger import entry
from mmctl.deploy.plan import plan_deploy
from mmctl.deploy.state import Kind, ServerState, Share, TreeState
from mmctl.deploy.steps import Move, Plan
from mmctl.deploy.tree import LocalTree
from mmctl.stack.compose import render_compose
from mmctl.stack.inventory import Inventory
from mmctl.workspace import read_workspace


def tree_in(workspace: Path) -> LocalTree:
    root = workspace / ".mmctl" / "served" / "embedded"
    root.mkdir(parents=True)
    return LocalTree(root)


def write_targets(workspace: Path, text: str) -> None:
    (workspace / "mmctl.yaml").write_text(f"targets: {text}\n")


@pytest.mark.parametrize("command", ["deploy", "promote", "rollback", "status"])
def test_without_a_server_there_is_nothing_to_deploy_to(
    workspace: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), command, "embedded"]) == 2
    said = capsys.readouterr().err
    assert "no embedded server runs" in said
    assert "hint: start one with `mmctl serve --detach`" in said


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ("{}", "`prod` is not a target of mmctl.yaml"),
        ("{prod: {url: 'h:1'}}", "target `prod` has no `repository`"),
        ("{prod: {url: 'h:1', repository: 's3://b'}}", "target `prod`: `s3://b` is no place for"),
        ("{prod: {url: 'h:1', repository: nowhere}}", "is no folder"),
    ],
)
def test_a_target_whose_tree_is_not_here_is_refused(
    workspace: Path, targets: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_targets(workspace, targets)
    assert main(["-C", str(workspace), "deploy", "prod"]) == 2
    assert message in capsys.readouterr().err


def test_history_tells_each_deployment_once(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tree_in(workspace)
    moves = {"m": Move((1,), (2,), {2: "key"})}
    for outcome in ("begun", "done", "begun", "refused", "begun"):
        tree.log(entry("deploy", moves, outcome, names=["m"]))  # type: ignore[arg-type]
    assert main(["-C", str(workspace), "history", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["deployments"]
    assert [line["outcome"] for line in lines] == ["done", "refused", "cut short"]
    assert main(["-C", str(workspace), "history"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].endswith("deploy m: done")
    assert shown[1] == "  m 1 -> 2"


def test_history_tells_the_share_of_a_canary(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = entry("canary", {"m__next": Move((), (2,), {2: "key"})}, "done", names=["m"])
    tree_in(workspace).log({**line, "share": 12.5})
    assert main(["-C", str(workspace), "history"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.endswith("canary m 12.5%: done")
    assert row == "  m__next none -> 2"


def test_without_deployments_history_says_so(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), "history"]) == 0
    assert capsys.readouterr().out == "nothing was deployed to `embedded` yet\n"


def test_prune_shows_first_and_wants_a_word(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tree_in(workspace)
    for version in range(1, 6):
        folder = tmp_path / "built" / str(version)
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(str(version))
        tree.copy("m", version, str(folder))
    tree.write("m", {"config.pbtxt": f'name: "m"\n{leaf()}'.encode()})
    assert main(["-C", str(workspace), "prune"]) == 2
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "2 old versions, 0.0 MB:"
    assert "cannot ask: there is no terminal" in shown.err
    assert main(["-C", str(workspace), "prune", "--yes"]) == 0
    assert set(tree.read().models["m"].versions) == {3, 4, 5}
    assert set(tree.read().keys["m"]) == {1, 2}  # their numbers stay taken


def test_a_deployed_tree_is_not_rebuilt_by_the_way(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree_in(workspace).log(entry("deploy", {}, "done"))
    for words in (["serve", "m"], ["serve", "--watch"]):
        assert main(["-C", str(workspace), *words]) == 2
        assert "what this server serves was deployed to it" in capsys.readouterr().err


def test_a_plan_is_told_step_by_step() -> None:
    plan = plan_deploy([wanted("m", 1, leaf(), size=2_000_000)], TreeState(), ServerState())
    assert render_plan("embedded", plan) == [
        "embedded: 2 steps, 2.0 MB more in memory meanwhile",
        "  1 copy m 1",
        "  2 serve m 1",
        "  m none -> 1",
    ]
    assert render_plan("embedded", Plan()) == ["embedded: nothing to do"]


@pytest.mark.parametrize(("text", "share"), [("10%", 10), ("0.5 %", 0.5), ("100%", 100)])
def test_a_share_is_in_percent(text: str, share: float) -> None:
    assert parse_share(text) == Share(share)


@pytest.mark.parametrize("text", ["10", "0.1", "0%", "101%", "ten%", "1.234%", ""])
def test_what_is_no_share_is_refused(
    workspace: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-C", str(workspace), "deploy", "embedded", "m", "--canary", text]
    assert main(words) == 2
    assert f"`--canary {text}`: not a share of the requests" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["canary", "shadow"])
def test_a_candidate_is_for_one_name(
    workspace: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-C", str(workspace), "deploy", "embedded", f"--{kind}", "10%"]) == 2
    assert f"`--{kind}` is for one model or pipeline" in capsys.readouterr().err


def test_a_canary_and_a_shadow_exclude_each_other(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["deploy", "embedded", "m", "--canary", "10%", "--shadow", "10%"]
    assert main(["-C", str(workspace), *words]) == 2
    assert "`--canary` and `--shadow` exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "since", "head", "counted"),
    [
        (
            "canary",
            "began",
            "canary: 12.5 % of the requests for m go to 2",
            "counted since the canary began",
        ),
        (
            "shadow",
            "restart",
            "shadow: 12.5 % of the requests for m are copied to 2",
            "counted since the server was started again, after the shadow began",
        ),
        (
            "canary",
            "load",
            "canary: 12.5 % of the requests for m go to 2",
            "counted since each was loaded: Triton does not say whether that was before the "
            "canary began",
        ),
    ],
)
def test_a_candidate_is_told_beside_the_live_one(
    kind: Kind, since: Since, head: str, counted: str
) -> None:
    live, candidate = Counts(200, 1, 398_000_000), Counts()
    answers = Disagreement(4, 1, "sample `a`: `y`: 1 expected, 2 came")
    of = Candidate("m", 2, Share(12.5, kind))
    assert render_comparison(Comparison(of, live, candidate, since, answers)) == [
        head,
        "m          requests  failed  mean",
        "live       200       0.5%    2.00 ms",
        "candidate  0         -       -",
        counted,
        "1 of 4 answers differ",
        "sample `a`: `y`: 1 expected, 2 came",
    ]


def test_status_tells_each_replica() -> None:
    key = {2: "k" * 40}
    up = Standing("m", (2,), (2,), (1, 2), key, replica="a:1")
    down = Standing("m", (2,), (), (1, 2), key, "no Triton answers", "b:1")
    assert render_standings([up, down]) == [
        "model  replica  live  state   holds  build key",
        "m      a:1      2     ready   1, 2   kkkkkkkkkkkk",
        "m      b:1      2     failed  1, 2   kkkkkkkkkkkk",
        "m on b:1: no Triton answers",
    ]
    alone = Standing("m", (2,), (), (1, 2), key, "broken")
    assert render_standings([alone])[0] == "model  live  state   holds  build key"
    assert render_standings([alone])[-1] == "m: broken"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "docker-compose.yml: there is none"),
        ({"docker-compose.yml": "services: {}\n"}, "has no service `triton`"),
    ],
)
def test_compose_is_a_target_where_its_file_is(
    workspace: Path, files: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        (workspace / name).write_text(text)
    assert main(["-C", str(workspace), "deploy", "compose"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "hint: run `mmctl stack`" in said


def test_the_folder_that_the_compose_file_mounts_must_be_there(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "docker-compose.yml").write_text(render_compose(Inventory((), ())))
    assert main(["-C", str(workspace), "history", "compose"]) == 2
    assert "which docker-compose.yml mounts, is no folder" in capsys.readouterr().err
    tree_in(workspace)
    assert main(["-C", str(workspace), "history", "compose"]) == 0


def test_a_store_that_is_down_is_told_and_holds_nothing_up(workspace: Path) -> None:
    write_targets(workspace, "{prod: {url: 'h:1', store: 'redis://127.0.0.1:1'}}")
    tree, server = memory_target(model := wanted("m", 1, leaf()))
    space = read_workspace(workspace)
    place = Place("prod", space, tree, server)  # type: ignore[arg-type]
    plan = plan_deploy([model], tree.read(), ServerState())
    said: list[str] = []
    carry_out(place, Deployment("deploy", ("m",), plan, Gathered((), {}), False), said.append)
    assert [line["outcome"] for line in tree.lines] == ["begun", "done"]
    (warning,) = (line for line in said if line.startswith("warning: "))
    assert warning.startswith("warning: the shared store was not told of it: ")


@pytest.mark.parametrize(
    ("target", "cache", "store"),
    [
        ("store: 'redis://a:1'", "store: 'redis://b:1'", "redis://a:1"),
        ("gpus: 0", "store: 'redis://b:1'", "redis://b:1"),
        ("gpus: 0", "max_bytes: 1MiB", ""),
    ],
)
def test_a_target_has_its_own_store_or_the_one_of_all(
    workspace: Path, target: str, cache: str, store: str
) -> None:
    text = f"targets: {{prod: {{url: 'h:1', {target}}}}}\ncache: {{{cache}}}\n"
    (workspace / "mmctl.yaml").write_text(text)
    tree, server = memory_target()
    assert store_of(Place("prod", read_workspace(workspace), tree, server)) == store  # type: ignore[arg-type]
