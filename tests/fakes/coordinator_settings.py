"""Settings of coordinators for tests: the defaults of a single broker, with the changes of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.base.config import BrokerConfig
from ottla.groups.settings import GroupCoordinatorSettings
from ottla.server import coordinator_views
from ottla.sharing.state_settings import ShareStateSettings
from ottla.transactions.settings import TransactionCoordinatorSettings


def group_settings(**changes: Any) -> GroupCoordinatorSettings:
    """Returns group settings. Share groups do not wait for further members at their start, unless the test sets it."""
    return replace(coordinator_views.group_settings(BrokerConfig()), **{"share_gathering_ms": 0, **changes})


def transaction_settings(**changes: Any) -> TransactionCoordinatorSettings:
    return replace(coordinator_views.transaction_settings(BrokerConfig()), **changes)


def share_state_settings(**changes: Any) -> ShareStateSettings:
    return replace(coordinator_views.share_state_settings(BrokerConfig()), **changes)
