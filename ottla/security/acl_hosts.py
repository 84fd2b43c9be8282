"""Hosts in ACLs: `*`, an address, or a network in CIDR notation (KIP-1276), compared by value, whatever their spelling.

The ACLs for an address are looked up under the address, under `*`, and under one network for each prefix length that some ACL uses. So the
cost of a decision does not depend on the number of networks.
"""

from __future__ import annotations

from ottla.base.acls import WILDCARD

MAPPED_LENGTH = 96
"""Length in bits of the prefix `::ffff:0:0`, before the IPv4 address in a mapped IPv6 address."""


def normal_host(host: str) -> str:
    """Returns an IPv6 address in its shortest form (Java writes `0:0:0:0:0:0:0:1`), a mapped IPv4 address as IPv4, and a network with the
    bits after its prefix cleared. Other texts are unchanged."""
    if "/" in host:
        return _normal_network(host) or host
    if ":" not in host:
        return host
    from ipaddress import IPv6Address  # on use: most addresses have no colon

    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def is_network(host: str) -> bool:
    """Whether the text is an address, a slash and the length of a prefix in bits."""
    return _normal_network(host) is not None


def _normal_network(host: str) -> str | None:
    from ipaddress import IPv6Network, ip_network

    length = host.partition("/")[2]
    if not (length.isascii() and length.isdecimal()):  # `ip_network` takes netmasks, too
        return None
    try:
        network = ip_network(host, strict=False)
    except ValueError:
        return None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is not None and network.prefixlen >= MAPPED_LENGTH:
        return f"{mapped}/{network.prefixlen - MAPPED_LENGTH}"
    return str(network)


class HostNames:
    """Computes the host names under which the ACLs of an index are looked up for an address."""

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths: dict[int, dict[int, None]] = {4: {}, 6: {}}  # prefix lengths of all networks, by version; none is removed

    def add(self, host: str) -> str:
        """Returns the host of an ACL in its normal form, and keeps the prefix length of a network."""
        name = normal_host(host)
        if is_network(name):
            self._lengths[6 if ":" in name else 4][int(name.rpartition("/")[2])] = None
        return name

    def of(self, address: str) -> tuple[str, ...]:
        """Returns the address, `*`, and the networks of the known prefix lengths that contain the address."""
        name = normal_host(address)
        lengths = self._lengths[6 if ":" in name else 4]
        if not lengths:
            return (name, WILDCARD)
        return (name, WILDCARD, *(network for length in lengths if (network := _normal_network(f"{name}/{length}"))))


def host_matches(host: str, address: str) -> bool:
    """Whether an ACL with this host applies to the address."""
    names = HostNames()
    return names.add(host) in names.of(address)
