"""The command line. `main` is the one place where errors become text and exit codes.

Exit codes: 0 yes; 1 no (a gate refused, files differ); 2 wrong input; 3 the world failed.
A command is a function in a file named after what it does, and a row here.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TextIO

import typer

from mmctl import __version__
from mmctl.cli import build, cache, context, deploy, runtime, serve, stack
from mmctl.cli.adopt import adopt
from mmctl.cli.bench import bench
from mmctl.cli.check import check
from mmctl.cli.compare import compare
from mmctl.cli.demo import demo
from mmctl.cli.doctor import doctor
from mmctl.cli.drill import drill
from mmctl.cli.engine import engine
from mmctl.cli.export import export, fetch
from mmctl.cli.infer import infer
from mmctl.cli.init import init
from mmctl.cli.trace import trace
from mmctl.cli.tune import tune
from mmctl.errors import MmctlError, WorldError

app = typer.Typer(
    name="mmctl",
    help="Compile multi-model pipelines to NVIDIA Triton, and run them on a real one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mmctl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    directory: Annotated[
        Path, typer.Option("-C", metavar="DIR", help="Work in the workspace of this folder.")
    ] = Path("."),
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    context.start_in(directory)


app.command()(init)
app.command()(adopt)
app.command()(build.build)
app.command("compile")(build.compile_)
app.command()(check)
app.command()(demo)
app.command()(compare)
app.command()(drill)
app.command()(bench)
app.command()(trace)
app.command()(tune)
app.command()(infer)
app.command()(engine)
app.command()(export)
app.command()(fetch)
app.command()(deploy.deploy)
app.command()(deploy.promote)
app.command()(deploy.rollback)
app.command()(deploy.status)
app.command()(deploy.history)
app.command()(deploy.prune)
app.command()(stack.stack)
app.command()(stack.image)
app.command()(stack.k8s)
app.command()(doctor)
app.add_typer(runtime.app, name="runtime")
app.add_typer(cache.app, name="cache")
app.command()(serve.serve)
app.command()(serve.stop)
app.command()(serve.logs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises MmctlError."""
    previous = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        return _run(argv)
    except MmctlError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _forget(sys.stdout, sys.stderr)
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _forget(sys.stdout)
        print("error: cannot write: no space left on device", file=sys.stderr)
        return WorldError.exit_code
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run(argv: Sequence[str] | None) -> int:
    """The exit code, once the whole answer has left."""
    code = 0
    try:
        app(args=argv)
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # of which typer makes an exit 1
            raise done.__context__ from None
        code = int(done.code or 0)
    print(end="", flush=True)
    return code


def _forget(*streams: TextIO) -> None:
    """What they still hold has no reader: Python would try again at its end, and fail aloud."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _interrupt(_number: int, _frame: object) -> None:
    """A polite end is an end: the same clean-up as for Ctrl-C."""
    raise KeyboardInterrupt
