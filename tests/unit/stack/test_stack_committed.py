"""What this repository commits for its own stack is what would be generated now."""

from __future__ import annotations

from pathlib import Path

from mmctl.cli.app import main


def test_the_stack_is_up_to_date(root: Path) -> None:
    assert main(["-C", str(root), "stack", "--check"]) == 0


def test_the_image_is_up_to_date(root: Path) -> None:
    assert main(["-C", str(root), "image", "--check"]) == 0


def test_the_manifests_are_up_to_date(root: Path) -> None:
    assert main(["-C", str(root), "k8s", "--check"]) == 0
