"""The health checks: a broker is ready while no check fails, and has started when it has been ready once."""

from __future__ import annotations

from ottla.server.monitoring.health import Health


def test_every_failed_check_gives_its_reason() -> None:
    said = {"logs": "3 coordinators are still loading", "listeners": ""}
    health = Health({name: (lambda name=name: said[name]) for name in said})  # type: ignore[misc]
    assert health.reasons() == {"logs": "3 coordinators are still loading"}
    assert not health.has_started()
    said["logs"] = ""
    assert health.reasons() == {}


def test_started_stays_true_when_ready_does_not() -> None:
    reason = [""]
    health = Health({"metadata": lambda: reason[0]})
    assert health.has_started()
    reason[0] = "the metadata session is lost"
    assert health.reasons() == {"metadata": "the metadata session is lost"}
    assert health.has_started()
