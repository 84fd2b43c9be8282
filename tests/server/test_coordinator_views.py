"""What single groups have for themselves: known settings only, within the bounds of the broker."""

from __future__ import annotations

from ottla.base.config import load
from ottla.controller.state import CONFIG_GROUP, ClusterMetadata
from ottla.server.coordinator_views import group_settings, own_group_settings


class OneGroup(ClusterMetadata):
    """Metadata in which group `g` has settings of its own."""

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


def test_settings_of_share_groups() -> None:
    config = load(assignments=("group.share.max.size=7", "group.share.initialize.retry.interval.ms=10"))[0]
    settings = group_settings(config)
    assert (settings.share_members_max, settings.share_session_timeout_ms, settings.share_heartbeat_interval_ms) == (7, 45_000, 5_000)
    assert settings.share_initialize_retry_interval_ms == config.offsets_commit_timeout_ms, "a retry comes after the time to commit"
