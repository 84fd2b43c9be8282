"""One member of a classic group: its preferred protocol, and its fields in the log."""

from __future__ import annotations

import pytest

from ottla.groups.classic.member import ClassicMember
from tests.groups.classic.coordinator import BOTH, ignore, member


def test_the_metadata_is_that_of_the_chosen_protocol() -> None:
    one = member("a", protocols=BOTH)
    assert [one.metadata(name) for name in ("range", "roundrobin", "sticky", None)] == [b"r", b"rr", b"", b""]


def test_a_member_votes_for_the_first_of_its_protocols_that_all_know() -> None:
    one = member("a", protocols=BOTH)
    assert one.vote({"roundrobin": None, "range": None}) == "range"
    assert one.vote({"roundrobin": None}) == "roundrobin"
    with pytest.raises(AssertionError):
        one.vote({"sticky": None})


def test_a_member_waits_with_either_request() -> None:
    one = member("a")
    assert not one.is_waiting
    one.sync_reply = ignore
    assert one.is_waiting
    one.join_reply, one.sync_reply = ignore, None
    assert one.is_waiting


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_member_comes_back_from_its_record(instance_id: str | None) -> None:
    """The record contains only the chosen protocol of the member. The member sends the others with its next JoinGroup."""
    one = ClassicMember.from_record(member("a", instance_id=instance_id, protocols=BOTH).to_record("roundrobin", b"share"), "roundrobin")
    assert (one.member_id, one.instance_id, one.client_id, one.client_host) == ("a", instance_id, "client", "/host")
    assert (one.protocols, one.assignment) == ((("roundrobin", b"rr"),), b"share")
    assert (one.rebalance_timeout_ms, one.session_timeout_ms, one.is_static) == (60_000, 10_000, instance_id is not None)


def test_a_record_of_before_rebalance_timeouts_has_the_session_timeout_for_both() -> None:
    record = member("a").to_record("range", b"")
    record.rebalance_timeout = -1
    assert ClassicMember.from_record(record, "range").rebalance_timeout_ms == 10_000


def test_a_record_without_a_protocol_names_it_by_the_empty_string() -> None:
    record = member("a").to_record(None, b"")
    assert ClassicMember.from_record(record, None).protocols == (("", b""),)
