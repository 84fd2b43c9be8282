"""The entry point of the program `ottla`. It imports other modules only inside a `try`, so that Ctrl-C during the start gives exit code 130
and no traceback.
"""

from __future__ import annotations


def main() -> int:
    try:
        from ottla.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
