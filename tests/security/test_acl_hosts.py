"""Hosts in ACLs, compared with the addresses and networks of the standard library."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.acl_hosts import HostNames, is_network, normal_host

ADDRESSES = st.sampled_from([4, 6]).flatmap(lambda version: st.ip_addresses(v=version))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("no:address", "no:address"),
        ("host", "host"),
        ("*", "*"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("2001:DB8:0::1/32", "2001:db8::/32"),
        ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
        ("::ffff:10.1.2.3/95", "::fffe:0:0/95"),
        ("10.0.0.1/33", "10.0.0.1/33"),
    ],
)
def test_hosts_have_a_normal_form(host: str, normal: str) -> None:
    assert normal_host(host) == normal


@pytest.mark.parametrize("host", ["10.0.0.1/32", "0.0.0.0/0", "::/0", "2001:db8::1/128", "10.0.0.1/8"])
def test_networks(host: str) -> None:
    assert is_network(host)


@pytest.mark.parametrize(
    "host",
    ["10.0.0.0/33", "::/129", "10.0.0.0/", "/8", "10.0.0/8", "10.0.0.0/255.0.0.0", "10.0.0.0/-1", "a/8", "1/8/8", "*/8", "10.0.0.0/٨"],
)
def test_other_texts_with_a_slash_are_no_networks(host: str) -> None:
    assert not is_network(host)


@given(st.lists(st.tuples(ADDRESSES, st.integers(0, 128)), max_size=6), ADDRESSES)
def test_an_address_has_the_names_of_the_networks_that_contain_it(drawn: list[tuple[object, int]], address: object) -> None:
    networks = [ip_network((str(each), min(length, each.max_prefixlen)), strict=False) for each, length in drawn]  # type: ignore[attr-defined]
    names = HostNames()
    written = {names.add(str(network)) for network in networks}
    found = names.of(str(address))
    if getattr(address, "ipv4_mapped", None) is None and not any(getattr(each.network_address, "ipv4_mapped", None) for each in networks):
        assert written & set(found) == {str(each) for each in networks if ip_address(str(address)) in each}
    assert len(found) <= len(networks) + 2


def test_there_is_one_look_up_for_each_prefix_length() -> None:
    names = HostNames()
    for number in range(256):
        names.add(f"10.0.{number}.0/24")
        names.add(f"2001:db8:{number:x}::/48")
    assert names.of("10.0.7.9") == ("10.0.7.9", "*", "10.0.7.0/24")
    assert names.of("2001:db8:7::1") == ("2001:db8:7::1", "*", "2001:db8:7::/48")
    assert names.of("a.host") == ("a.host", "*")
