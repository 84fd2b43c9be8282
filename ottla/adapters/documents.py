"""Reads small documents from files and HTTPS addresses (`ports.ReadDocument`). The function blocks, so it is called in a thread. It uses no
proxy and no login, and follows no redirect. A given truststore replaces the system's.
"""

from __future__ import annotations

import ssl
import time
from http.client import HTTPException, HTTPSConnection
from urllib.parse import unquote, urlsplit

DOCUMENT_BYTES_MAX = 1 << 20
TIMEOUT_S = 5.0
"""Limit for each wait on the connection, in seconds. The whole body must arrive within this time, too."""


def read_document(url: str, authorities: str | None) -> bytes:
    """Returns the content of `file:///PATH` or `https://HOST[:PORT]/PATH`; `authorities` is a PEM file. Raises `OSError`, or
    `ValueError` for a malformed address."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return _within_bounds(file.read(DOCUMENT_BYTES_MAX + 1))
    if parts.scheme != "https" or parts.hostname is None:
        raise OSError(f"neither a file nor an HTTPS address: {url}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = HTTPSConnection(
        parts.hostname, parts.port or 443, timeout=TIMEOUT_S, context=ssl.create_default_context(cafile=authorities)
    )
    try:
        return _get(connection, target)
    except HTTPException as error:
        raise OSError(f"no HTTP: {type(error).__name__}") from None
    finally:
        connection.close()


def _get(connection: HTTPSConnection, target: str) -> bytes:
    ends = time.monotonic() + TIMEOUT_S
    connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
    response = connection.getresponse()
    if response.status != 200:
        raise OSError(f"HTTP status {response.status}")
    data = b""
    while piece := response.read1(65536):
        data = _within_bounds(data + piece)
        if time.monotonic() > ends:
            raise OSError(f"it takes longer than {TIMEOUT_S:.0f} s")
    return data


def _within_bounds(data: bytes) -> bytes:
    if len(data) > DOCUMENT_BYTES_MAX:
        raise OSError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return data
