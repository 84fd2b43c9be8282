"""The program's first lines: they import nothing, so that Ctrl-C is answered by an exit code from the first millisecond on."""

from __future__ import annotations


def main() -> int:
    """The program; gives its exit code."""
    try:
        from ottla.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
