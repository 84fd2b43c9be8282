"""What a check of exactly-once may say: it passes with a remark, or raises one of two."""

from __future__ import annotations

from typing import NamedTuple

PASS = "pass"
FAIL = "fail"
NOT_SUPPORTED = "not supported"


class Broken(Exception):
    """The broker broke the promise; the text says what was seen."""


class NotSupported(Exception):
    """The broker does not offer what the promise is about."""


class Verdict(NamedTuple):
    name: str
    verdict: str
    detail: str
    seconds: float
