"""Settings of single groups: only known settings apply, limited to the bounds of the broker."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import CONFIG_GROUP, ClusterMetadata
from ottla.base.config import load
from ottla.server.coordinator_views import group_settings, own_group_settings, share_terms


class OneGroup(ClusterMetadata):
    """Metadata with own settings of group `g`."""

    def configs(self, resource_type: int, name: str) -> dict[str, str]:
        asked = (resource_type, name)
        return (
            {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "1", "x": "y"}
            if asked == (CONFIG_GROUP, "g")
            else {}
        )


def test_a_group_may_have_settings_of_its_own() -> None:
    config = load(assignments=("group.consumer.min.heartbeat.interval.ms=3000",))[0]
    own = own_group_settings(config, OneGroup())
    assert own("g") == {"consumer.session.timeout.ms": 50_000, "consumer.heartbeat.interval.ms": 3_000}
    assert own("h") == {}
    assert group_settings(config).consumer_assignment_interval_ms == 1_000


@pytest.mark.parametrize("assignments", [(), ("group.initial.rebalance.delay.ms=0",)])
def test_late_metadata_is_waited_for_also_where_no_delay_is_asked_for(assignments: tuple[str, ...]) -> None:
    settings = group_settings(load(assignments=assignments)[0])
    assert (settings.initial_rebalance_delay_ms, settings.late_metadata_wait_ms) == (0, 200)


def test_settings_of_share_groups() -> None:
    config = load(assignments=("group.share.max.size=7", "group.share.initialize.retry.interval.ms=10"))[0]
    settings = group_settings(config)
    assert (settings.share_members_max, settings.share_session_timeout_ms, settings.share_heartbeat_interval_ms) == (7, 45_000, 5_000)
    assert settings.share_gathering_ms == 200
    assert settings.share_initialize_retry_interval_ms == config.offsets_commit_timeout_ms, "a retry comes after the time to commit"


class ChangingGroup(ClusterMetadata):
    """Metadata with settings of group `g` that the test changes."""

    def __init__(self) -> None:
        super().__init__()
        self.overrides: dict[str, str] = {}

    def configs(self, resource_type: int, name: str) -> dict[str, str]:
        return self.overrides if (resource_type, name) == (CONFIG_GROUP, "g") else {}


def test_the_terms_of_a_share_group_follow_its_settings() -> None:
    metadata = ChangingGroup()
    terms_of = share_terms(load(assignments=("group.share.delivery.count.limit=3",))[0], metadata)
    assert terms_of("g") is terms_of("g")
    assert terms_of("g") == (30_000, 3, 2000, "latest", False, True, False)
    metadata.overrides["share.record.lock.duration.ms"] = "20000"
    metadata.overrides["share.isolation.level"] = "read_committed"
    metadata.overrides["share.renew.acknowledge.enable"] = "false"
    assert terms_of("g") == (20_000, 3, 2000, "latest", True, False, False)
    metadata.overrides["errors.deadletterqueue.topic.name"] = "dlq.g"
    assert terms_of("g").has_dead_letters
    assert terms_of("h").lock_duration_ms == 30_000
    older = share_terms(load(assignments=("ottla.advertise.level=4.3",))[0], metadata)
    assert not older("g").has_dead_letters, "share.version is 1"
