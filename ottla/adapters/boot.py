"""Which boot of the machine this is: what was written but not synced survives the end of a process, and not the end of a boot."""

from __future__ import annotations

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def boot_id(path: str = BOOT_ID_FILE) -> str:
    """Empty where the system does not say."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
