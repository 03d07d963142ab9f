"""Deployments to a real Triton while clients never pause: what answers, and what is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_bench import Bench, Crowd

from mmctl.server.runtime import Runtime

pytestmark = [pytest.mark.live, pytest.mark.exports]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("deploy"))
    made.change()
    made.serve()
    yield made
    made.stop()


REQUESTS = 20_000


def test_clients_see_no_gap_and_no_version_that_is_not_live(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    crowd = Crowd(bench)

    def go(**code: object) -> None:
        crowd.move(bench.deploy, bench.change(**code))
        assert bench.answers() == bench.right()

    with crowd.asking():
        go(shift=2)  # a step, and through it both pipelines
        go(factor=20)  # a model whose answers Triton caches
        before = bench.code
        bench.change(shift=3)
        broken = "def shift(x):\n    return {'x': x}\n\n\nraise ImportError('broken on purpose')\n"
        bench.put("ensembles/total/steps.py", broken)
        bench.build()
        assert bench.deploy() == 1
        assert bench.answers() == bench.right(before)
        go(shift=4, out="moved")  # the step's output has another name
        go(more=True, weight=50)  # the pipeline has one output more
        changed, earlier = bench.code, crowd.epochs[-2][0]
        crowd.move(lambda: bench.rollback("guard"), earlier)
        assert bench.answers() == bench.right(earlier)
        crowd.move(bench.deploy, changed)
        go(note="int32", more=False)  # another type, which no config shares with the old one
        go(bls=True)  # the pipeline that another one calls is no ensemble any more
        go(bls=False)
        while len(crowd.seen) < REQUESTS:
            go(shift=bench.code.shift + 1)
    out = capsys.readouterr()
    print(f"{len(crowd.seen)} requests, {len(crowd.failed)} failed, {len(crowd.stale)} stale")
    assert crowd.failed == []
    assert crowd.stale == []
    assert "broken on purpose" in out.err
    assert len(crowd.seen) >= REQUESTS


def test_rollback_of_changed_outputs_outlives_other_loads_and_a_killed_server(
    bench: Bench,
) -> None:
    before = bench.change(more=False, out="x", shift=30)
    assert bench.deploy() == 0
    bench.change(more=True, out="moved", shift=40, factor=30)
    assert bench.deploy() == 0
    assert bench.answers() == bench.right()
    assert bench.rollback("guard") == 0
    assert bench.answers() == bench.right(before)
    bench.add_side()
    bench.build()
    assert bench.deploy("side") == 0
    assert bench.answers() == bench.right(before)
    assert bench.ask("side") == bench.code.answer("side", 3)
    bench.kill()
    bench.serve()
    assert bench.answers() == bench.right(before)
    assert bench.ask("side") == bench.code.answer("side", 3)
    assert bench.deploy() == 0
    assert bench.answers() == bench.right()


def refused(bench: Bench, capsys: pytest.CaptureFixture[str], *names: str) -> str:
    """What is said of a deployment that is refused; all must be as it was."""
    served = bench.answers()
    tree = snapshot(bench.root)
    capsys.readouterr()
    assert bench.deploy(*names) == 1
    assert bench.answers() == served
    assert snapshot(bench.root) == tree
    said = capsys.readouterr().err
    return said[said.index("error: ") :]


def snapshot(root: Path) -> dict[str, bytes]:
    served = root / ".mmctl" / "served" / "embedded"
    files = (path for path in served.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(served)): path.read_bytes() for path in files}


def test_a_golden_answer_that_differs_is_refused(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    good = bench.code
    bench.change(shift=50)
    bench.sample("total", -1)
    said = refused(bench, capsys)
    assert "golden request `two` of `total`: `y`: -1 expected" in said
    assert "the server runs what it ran before" in said
    bench.change(shift=good.shift)
    assert bench.deploy() == 0


def test_a_model_that_takes_its_dependants_down_is_refused(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    yaml = (bench.root / "model_repository/scale/model.yaml").read_text()
    bench.put("model_repository/scale/model.yaml", yaml.replace("max_batch: 8", "max_batch: 2"))
    bench.build()
    said = refused(bench, capsys, "scale")
    assert "`total`" in said
    assert "shall be ready, Triton has none" in said
    bench.change()


def test_a_warm_up_that_kills_the_server_is_refused_and_the_old_one_starts_again(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    model = bench.root / "model_repository/scale"
    pid = bench.info.pid
    text = (model / "model.py").read_text()
    bench.put(
        "model_repository/scale/model.py",
        text.replace("answers = []", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"),
    )
    with (model / "model.yaml").open("a") as file:
        file.write("warmup: [{}]\n")
    bench.build()
    said = refused(bench, capsys)
    assert "Triton died while it loaded `scale`" in said
    assert "it was started again, and runs what it ran before" in said
    assert bench.info.pid != pid
    bench.change()
    assert bench.deploy() == 0


def test_history_and_status_tell_what_was_done(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert bench.run("history", "embedded", "--json") == 0
    lines = json.loads(capsys.readouterr().out)["deployments"]
    assert {line["outcome"] for line in lines} == {"done", "refused"}
    assert {line["what"] for line in lines} == {"deploy", "rollback"}
    assert bench.run("status", "embedded", "--json") == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert {m["state"] for m in models if m["model"] in bench.pipelines} == {"ready"}


def test_pruned_versions_are_gone_and_what_is_live_stays(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run("prune", "embedded", "--dry-run") == 0
    assert "total__shift" in capsys.readouterr().out
    assert bench.run("prune", "embedded", "--yes") == 0
    assert bench.answers() == bench.right()
    assert bench.run("prune", "embedded", "--yes") == 0
    assert capsys.readouterr().out.endswith("nothing to remove\n")
    assert bench.deploy() == 0
    assert bench.rollback("total") == 1  # an ensemble that guard still calls


def test_serve_serves_what_was_deployed_until_it_is_told_to_rebuild(bench: Bench) -> None:
    deployed = bench.answers()
    bench.change(shift=77)
    bench.stop()
    bench.serve()
    assert bench.answers() == deployed
    bench.stop()
    bench.serve("--rebuild")
    assert bench.answers() == bench.right()
    assert bench.deploy() == 0
