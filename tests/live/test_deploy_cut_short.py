"""A deployment whose process is killed: old or new serves, and the next one finishes. And one to a
Triton that mmctl did not start, which is found by its address.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest
from deploy_bench import Bench, Crowd, deploy_and_die

from mmctl.client import Client
from mmctl.server.process import EmbeddedTriton
from mmctl.server.runtime import VARIABLE, Runtime
from mmctl.serving.session import prepare

pytestmark = [pytest.mark.live, pytest.mark.exports]

MIDDLE = 12
"""A seam in the middle of a deployment of pipelines that call pipelines; a target in memory goes
through all of them (tests/unit/deploy/test_apply.py).
"""


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory, runtime: Runtime) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("cut"), alone=True)
    made.change()
    yield made
    made.stop()


def killed_at(bench: Bench, seam: int) -> bool:
    """Whether the deployment lived long enough to die there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deploy_bench"])
    runtime = {VARIABLE: os.environ[VARIABLE]}
    process = context.Process(target=deploy_and_die, args=(str(bench.root), seam, runtime))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def test_killed_at_any_seam_old_or_new_serves_and_the_next_deploy_finishes(bench: Bench) -> None:
    bench.serve()
    assert bench.deploy() == 0
    crowd = Crowd(bench, pause_s=0.01)
    seam = 0
    with crowd.asking(threads=1):
        is_killed = True
        while is_killed:
            seam += 1
            old, new = bench.code, bench.change(shift=bench.code.shift + 1)
            is_killed = killed_at(bench, seam)
            for name, y in bench.answers().items():
                assert y in (old.answer(name, 3), new.answer(name, 3)), f"{name} at seam {seam}"
            assert bench.deploy() == 0
            assert bench.answers() == bench.right(new), f"seam {seam}"
    assert seam > 12
    assert crowd.failed == []


def test_a_server_that_starts_on_a_tree_that_was_cut_short_serves_old_or_new(bench: Bench) -> None:
    bench.serve()
    assert bench.deploy() == 0
    for seam in (5, 10, 14):
        served = bench.answers()
        bench.change(shift=bench.code.shift + 1)
        assert killed_at(bench, seam)
        bench.kill()
        bench.serve()
        assert bench.answers() in (served, bench.right()), f"seam {seam}"
    assert bench.deploy() == 0
    assert bench.answers() == bench.right()


def test_a_triton_that_mmctl_did_not_start_is_deployed_to_through_its_folder(
    bench: Bench, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = prepare(bench.space, [], bench.root / "models", print).tree
    with EmbeddedTriton.start(
        runtime, tree.root, state=bench.space.state, private=True, say=print
    ) as server:
        name, value = next(iter(server.headers.items()))
        monkeypatch.setenv("TRITON_HEADERS", f"{name}: {value}")
        target = f"{{url: 'grpc://{server.grpc}', repository: models, headers_env: TRITON_HEADERS}}"
        new = bench.change(shift=7)
        bench.put("mmctl.yaml", f"targets: {{other: {target}}}\n")
        assert bench.run("deploy", "other", "--yes") == 0
        with Client(server.grpc) as client:
            answer = client.infer("total", {"x": [[3.0]]}).outputs["y"]
        assert float(answer.ravel()[0]) == new.answer("total", 3)
        assert bench.run("status", "other") == 0


def test_of_pipelines_that_call_pipelines_old_or_new_serves_too(
    tmp_path_factory: pytest.TempPathFactory, runtime: Runtime
) -> None:
    """`guard`, in the bls form, calls `total`, an ensemble, for which a candidate stands in."""
    nested = Bench(tmp_path_factory.mktemp("nested"))
    nested.change()
    nested.serve()
    try:
        assert nested.deploy() == 0
        old, new = nested.code, nested.change(shift=nested.code.shift + 1)
        assert killed_at(nested, MIDDLE)
        for name, y in nested.answers().items():
            assert y in (old.answer(name, 3), new.answer(name, 3)), name
        assert nested.deploy() == 0
        assert nested.answers() == nested.right(new)
    finally:
        nested.stop()
