"""GPU use by a server's metrics. The lines are those of Triton 2.51."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mmctl.loadtest import gpu
from mmctl.loadtest.gpu import gpus_of, told, watching

METRICS = """# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
nv_gpu_utilization{gpu_uuid="GPU-2"} 0
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 17179869184
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 8589934592
nv_gpu_power_usage{gpu_uuid="GPU-1"} 70.5
nv_energy_consumption{gpu_uuid="GPU-1"} 1000
nv_inference_count{model="a",version="1",gpu_uuid="GPU-1"} 7
nv_cpu_utilization 0.1
"""


def test_only_what_is_of_gpus_is_read() -> None:
    found = gpus_of(METRICS)
    assert set(found) == {"GPU-1", "GPU-2"}
    assert found["GPU-1"]["nv_gpu_power_usage"] == 70.5
    assert "nv_inference_count" not in found["GPU-1"]


def test_use_is_told_of_each_gpu_over_all_looks() -> None:
    later = METRICS.replace("} 0.5", "} 0.9").replace("} 1000", "} 1200").replace("} 70.5", "} 80")
    result = told([gpus_of(METRICS), gpus_of(later)])
    assert result is not None
    one, two = result["gpus"]
    assert one == {
        "uuid": "GPU-1",
        "utilization": {"mean": 0.7, "max": 0.9},
        "memory_used_gib": 8.0,
        "memory_total_gib": 16.0,
        "power_watts": {"mean": 75.25, "max": 80.0},
        "energy_joules": 200.0,
    }
    assert (two["uuid"], two["memory_used_gib"], two["energy_joules"]) == ("GPU-2", None, None)


def test_without_gpus_there_is_nothing() -> None:
    assert told([gpus_of("nv_cpu_utilization 0.1\n")]) is None


def test_a_server_is_looked_at_while_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "EVERY_S", 0.02)
    looked = threading.Event()
    count = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal count
            count += 1
            if count == 3:
                looked.set()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with watching(f"127.0.0.1:{server.server_port}") as watched:
            assert looked.wait(10)
        server.shutdown()
        thread.join()
    result = watched.told()
    assert result is not None
    assert result["looks"] >= 2
    assert result["gpus"][0]["energy_joules"] == 0


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
def test_a_server_without_metrics_has_none(address: str | None) -> None:
    with watching(address) as watched:
        pass
    assert watched.told() is None
