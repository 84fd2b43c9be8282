"""Reads the fields of an HTML form (`application/x-www-form-urlencoded`) from the body of a request."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

FORM_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of a form: a record of 1 MB, quoted."""
FORM_FIELDS_MAX = 500


async def form_of(request: Request) -> dict[str, str] | None:
    """Returns the fields of a form, None if it is too large or has too many fields."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            return None
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
    except ValueError:
        return None
