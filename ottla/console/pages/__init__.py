"""The pages of the console, one module for each subject. The menu has the pages in the order of `MODULES`."""

from __future__ import annotations

import importlib

from ottla.console.visit import PAGES

MODULES = (
    "overview", "brokers", "settings", "cluster", "zookeeper", "wire", "topics", "topic", "messages", "log", "groups", "share_groups",
    "transactions", "pipelines", "why", "acls", "users", "quotas", "about",
)  # fmt: skip


def load() -> None:
    """Imports the modules, which register their pages and actions, and orders the pages as `MODULES`."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
    PAGES.sort(key=lambda page: MODULES.index(page.make.__module__.rpartition(".")[2]))
