"""Identifies the current boot of the machine. Data that were written but not synced survive the end of a process, but not a reboot."""

from __future__ import annotations

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def boot_id(path: str = BOOT_ID_FILE) -> str:
    """Returns the kernel's boot id; empty where the system has none."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
