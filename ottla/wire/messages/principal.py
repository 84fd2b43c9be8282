"""The principal of a forwarded request, inside an Envelope."""

from __future__ import annotations

from ottla.wire.schema import Data, boolean, string


class DefaultPrincipalData(Data, versions=(0, 0), flexible=0):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
