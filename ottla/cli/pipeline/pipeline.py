"""`ottla pipeline`: run, status, verify. Only `run` imports Spark and its dependencies."""

from __future__ import annotations

from ottla.cli.pipeline import run, status, verify

COMMANDS = {
    "run": run.RUN,
    "status": status.STATUS,
    "verify": verify.VERIFY,
}
