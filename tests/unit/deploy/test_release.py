"""The release that rules rest on is what the servers say; what mmctl.yaml says must agree."""

from __future__ import annotations

import pytest

from mmctl.deploy.release import release_for
from mmctl.errors import InputError
from mmctl.triton.releases import SERVERS, Release, parse_release, release_of_server

BUILT_FOR = Release(24, 10)


@pytest.mark.parametrize(
    ("stated", "versions", "release", "warned"),
    [
        (None, ["2.51.0"], "24.10", False),
        (None, ["2.59.1"], "25.07", False),
        (None, ["2.59.0"], "25.06", False),
        ("24.10", ["2.51.0", "2.51.0"], "24.10", False),
        (None, ["2.54.0", "2.52.0"], "24.11", False),
        ("25.02", ["9.1.0"], "25.02", True),
        (None, ["9.1.0"], "24.10", True),
        (None, ["9.1.0", "2.54.0"], "25.01", True),
    ],
)
def test_the_oldest_of_the_replicas_counts(
    stated: str | None, versions: list[str], release: str, warned: bool
) -> None:
    found, warnings = release_for("prod", stated, versions, BUILT_FOR)
    assert str(found) == release
    assert bool(warnings) is warned


@pytest.mark.parametrize(
    ("stated", "versions", "message"),
    [
        ("25.01", ["2.51.0"], "mmctl.yaml says release 25.01, and its Triton is 24.10"),
        ("24.10", ["2.51.0", "2.52.0"], "says release 24.10, and its Triton is 24.11"),
        (None, ["2.46.0"], "its Triton is 24.05, and what was built is for 24.10 on"),
    ],
)
def test_another_release_than_was_built_for_is_refused(
    stated: str | None, versions: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        release_for("prod", stated, versions, BUILT_FOR)
    assert "release: " in str(caught.value.hint)


def test_the_table_of_servers_is_in_order_of_time() -> None:
    releases = [parse_release(text) for text in SERVERS.values()]
    assert releases == sorted(set(releases))
    assert release_of_server("2.51.0") == Release(24, 10)
    assert release_of_server("nonsense") is None
