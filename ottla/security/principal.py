"""Principals: names of the form that ACLs use (`User:alice`)."""

from __future__ import annotations

from typing import Protocol

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated."""


def split_principal(principal: str) -> tuple[str, str]:
    """Splits a principal into its type and name, as messages hold them."""
    kind, _, name = principal.partition(":")
    return kind, name


def join_principal(kind: str, name: str) -> str:
    return f"{kind}:{name}"


class Requester(Protocol):
    """The properties of a request's sender that an authorizer uses."""

    principal: str
    host: str
    listener: str
    is_inter_broker: bool
    """Whether the connection is another broker's."""
