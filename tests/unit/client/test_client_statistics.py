"""What a Triton counts of its models."""

from __future__ import annotations

from dataclasses import replace

from mmctl.client.statistics import ModelStatistics, between, mean_batches, statistics_of


def counted(**more: int) -> ModelStatistics:
    return ModelStatistics("tag", "1", **more)  # type: ignore[arg-type]


def test_between_two_looks_is_what_came_in_between() -> None:
    before = [counted(requests=5, rows=9, executions=3, queue_ns=100), ModelStatistics("old", "1")]
    after = [
        counted(requests=7, failed=1, rows=19, executions=5, queue_ns=400),
        ModelStatistics("old", "1"),
        ModelStatistics("new", "2", requests=3),
    ]
    tag, new = between(before, after)
    assert tag == counted(requests=2, failed=1, rows=10, executions=2, queue_ns=300)
    assert new.requests == 3
    assert tag.mean_batch == 5
    assert tag.per_request_ms(tag.queue_ns) == 0.0003


def test_a_model_that_was_loaded_again_counts_from_there() -> None:
    [tag] = between([counted(requests=50, rows=60)], [counted(requests=55, rows=20)])
    assert (tag.requests, tag.rows) == (55, 20)


def test_batches_are_told_by_their_size() -> None:
    before = [ModelStatistics("tag", "1", requests=1, batches={1: 4, 8: 2})]
    after = [ModelStatistics("tag", "1", requests=9, batches={8: 5, 1: 4, 2: 1})]
    assert between(before, after)[0].batches == {2: 1, 8: 3}


def test_nothing_is_no_number() -> None:
    assert counted(requests=2, failed=2).per_request_ms(5) is None
    assert counted().mean_batch is None


def test_they_are_read_from_tritons_own_message() -> None:
    from tritonclient.grpc import service_pb2 as pb

    message = pb.ModelStatisticsResponse()
    model = message.model_stats.add(name="tag", version="3", inference_count=7, execution_count=2)
    model.inference_stats.success.count, model.inference_stats.success.ns = 4, 90
    model.inference_stats.fail.count, model.inference_stats.queue.ns = 1, 30
    batch = model.batch_stats.add(batch_size=4)
    batch.compute_infer.count, batch.compute_infer.ns, batch.compute_input.ns = 2, 40, 5
    [read] = statistics_of(message)
    assert read == ModelStatistics(
        "tag", "3", requests=5, failed=1, rows=7, executions=2, total_ns=90, queue_ns=30,
        batches={4: 2}, batch_ns={4: 45},
    )  # fmt: skip


def test_the_mean_batch_is_over_the_versions_of_a_model() -> None:
    one, two = counted(rows=9, executions=3), replace(counted(rows=7, executions=1), version="2")
    ensemble = ModelStatistics("all", "1", requests=4, rows=4)
    assert mean_batches([one, two, ensemble]) == {one.model: 4.0}
