"""The results of a check: it returns a remark, or raises `Broken`, `NotSupported` or `NotDone`."""

from __future__ import annotations

from typing import NamedTuple

PASS = "pass"
FAIL = "fail"
NOT_SUPPORTED = "not supported"
UNCLEAR = "unclear"


class Broken(Exception):
    """The broker broke the promise; the text says what was observed."""


class NotSupported(Exception):
    """The broker lacks the feature."""


class NotDone(Exception):
    """The check could not be made, so nothing is known about the promise."""


class Verdict(NamedTuple):
    name: str
    verdict: str
    detail: str
    seconds: float
