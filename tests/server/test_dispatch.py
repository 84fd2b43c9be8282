"""Routes: which requests are executed, and which close their connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import WireError
from ottla.server.dispatch import for_extended_connections


def test_an_extension_is_unknown_to_a_connection_that_has_not_asked() -> None:
    handled: list[object] = []
    handle = for_extended_connections(20000, lambda _broker, _request, body: handled.append(body))
    request: Any = SimpleNamespace(connection=SimpleNamespace(has_extensions=False))
    with pytest.raises(WireError, match="unknown api key 20000"):
        handle(None, request, "a body")
    assert handled == []
    request.connection.has_extensions = True
    handle(None, request, "a body")
    assert handled == ["a body"]
