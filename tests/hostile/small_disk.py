"""A disk that becomes full: a small tmpfs if this user may mount one, otherwise a broker whose writes are refused while a file exists. The
latter is also a program, which runs the broker with `os.pwrite` and `os.statvfs` replaced: `python -m tests.hostile.small_disk FLAG start
...`.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.clients.broker_process import BrokerProcess

SIZE_MIB, BALLAST_MIB = 64, 42


class SmallDisk:
    """The file system of one log directory."""

    def __init__(self, directory: Path, flag: Path) -> None:
        self.directory = directory
        self._flag = flag
        directory.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "none", str(directory)]
        self.is_real = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0

    @property
    def ballast(self) -> Path:
        return self.directory / "ballast"

    def start(self, broker: BrokerProcess) -> None:
        if not self.is_real:
            broker.program = ["-m", "tests.hostile.small_disk", str(self._flag)]
        broker.start()

    def fill(self) -> None:
        """Fills the disk except for the space of some records."""
        if self.is_real:
            self.ballast.write_bytes(bytes(BALLAST_MIB << 20))
        else:
            self._flag.touch()

    def clear(self) -> None:
        (self.ballast if self.is_real else self._flag).unlink(missing_ok=True)

    def close(self) -> None:
        if self.is_real:
            subprocess.run(["umount", "-l", str(self.directory)], check=True)


def main(flag: str, arguments: list[str]) -> int:
    """Runs the broker on a disk that is full while the flag file exists."""
    from ottla.cli.main import main as ottla

    write, look = os.pwrite, os.statvfs

    def pwrite(descriptor: int, data: Any, position: int) -> int:
        if os.path.exists(flag):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, position)

    def statvfs(path: Any) -> Any:
        found = look(path)
        is_full = os.path.exists(flag)
        return SimpleNamespace(f_frsize=found.f_frsize, f_blocks=found.f_blocks, f_bavail=0 if is_full else found.f_bavail)

    os.pwrite, os.statvfs = pwrite, statvfs
    return ottla(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
