"""The version of a request, and why there is none."""

from __future__ import annotations

import pytest

from ottla.client.core.versions import CEILINGS, Versions
from ottla.client.errors import UnsupportedVersionError
from tests.client.core.talk import versions_answer

PRODUCE = 0


def test_the_error_names_the_versions_that_the_client_would_use() -> None:
    versions = Versions("b1:9092")
    versions.learn(versions_answer({PRODUCE: (CEILINGS[PRODUCE] + 1, CEILINGS[PRODUCE] + 2)}))
    with pytest.raises(UnsupportedVersionError, match=f"speaks Produce 12 to 13, this client [0-9]+ to {CEILINGS[PRODUCE]}$"):
        versions.version_of(PRODUCE)
