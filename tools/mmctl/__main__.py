"""`mmctl` and `python -m mmctl`."""

from __future__ import annotations

import sys


def run() -> None:
    from mmctl.cli.app import main

    sys.exit(main())


if __name__ == "__main__":
    run()
