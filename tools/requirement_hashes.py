"""Updates the hashes in `requirements/*.txt`: for every file of each pinned version, for all platforms and Pythons.

`make hashes` runs it after a version in one of these files was changed. uv looks up the hashes; names, versions and the comment at the head
of each file are kept.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
LEAST_PYTHON = "3.11.5"
"""The oldest Python that all the packages support. The hashes include the files for newer ones."""


def head_and_pins(text: str) -> tuple[list[str], list[str]]:
    """Returns the comments at the head of a file of requirements, and its `name==version` lines without hashes."""
    lines = [line.rstrip(" \\") for line in text.splitlines()]
    return [line for line in lines if line.startswith("#")], [line for line in lines if line and line[0] not in "# "]


def renew(path: Path, uv: str) -> None:
    """Writes the file with new hashes. Raises `CalledProcessError` if uv does not find a version."""
    head, pins = head_and_pins(path.read_text())
    command = [uv, "pip", "compile", "--quiet", "--no-deps", "--universal", "--python-version", LEAST_PYTHON, "--generate-hashes"]
    done = subprocess.run(
        [*command, "--no-header", "--no-annotate", "-"], input="\n".join(pins), stdout=subprocess.PIPE, text=True, check=True
    )
    path.write_text("\n".join([*head, done.stdout]))


def main(arguments: list[str]) -> int:
    for path in sorted(REQUIREMENTS.glob("*.txt")):
        print(f"hashes: {path.name}", file=sys.stderr)
        renew(path, arguments[0])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
