"""`ottla pipeline`: run, status, verify. Spark and what it needs are imported by `run` alone."""

from __future__ import annotations

from ottla.cli.pipeline import run, status, verify

COMMANDS = {
    "run": run.RUN,
    "status": status.STATUS,
    "verify": verify.VERIFY,
}
