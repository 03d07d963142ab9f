"""The server of docker-compose.yml, as docker compose itself would read the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmctl.errors import InputError
from mmctl.server.composed import parse_composed, read_composed
from mmctl.stack.compose import render_compose, with_private
from mmctl.stack.inventory import Inventory

TEXT = render_compose(Inventory((), (), 32))


def test_what_mmctl_writes_is_read(tmp_path: Path) -> None:
    found = parse_composed(TEXT, tmp_path, {"TRITON_KEY": "secret"})
    assert (found.grpc, found.http, found.key) == ("127.0.0.1:8001", "127.0.0.1:8000", "secret")
    assert found.served == tmp_path / ".mmctl/served/embedded"
    assert "secret" not in repr(found)


def test_variables_move_ports_and_folder(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text(TEXT)
    private = with_private("export TRITON_GRPC_PORT = 9001\nMMCTL_SERVED=/srv/models\n", "k1")
    (tmp_path / ".env").write_text(private)
    found = read_composed(tmp_path, {"TRITON_HTTP_PORT": "9000", "TRITON_KEY": "k2"})
    assert (found.grpc, found.http, found.key) == ("127.0.0.1:9001", "127.0.0.1:9000", "k2")
    assert found.served == Path("/srv/models")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is none"),
        ("services: {web: {image: nginx}}\n", "has no service `triton` as mmctl writes it"),
        ("services: [triton]\n", "has no service `triton`"),
        ("services: {triton: {ports: [], volumes: [], command: []}}\n", "has no service"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "docker-compose.yml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_composed(tmp_path, {})
    assert "mmctl stack" in str(caught.value.hint)
