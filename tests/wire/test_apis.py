"""The table of the protocol's APIs, compared with the message classes and with an independent codec."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import kio.schema
import pytest

from ottla.wire.apis import APIS, EXTENSIONS_SINCE, KEYS
from ottla.wire.framing import is_flexible, load

JUDGE = Path(kio.schema.__path__[0])


def test_every_key_has_a_line_and_a_name_of_its_own() -> None:
    assert list(APIS) == [*range(95), 20000, 20001, 20002, 20003, 20004]
    assert [key for key in APIS if key >= EXTENSIONS_SINCE] == [20000, 20001, 20002, 20003, 20004]
    assert len(KEYS) == len(APIS)


@pytest.mark.parametrize("key", APIS)
def test_messages_have_the_facts_of_their_line(key: int) -> None:
    api = APIS[key]
    for cls, kind in zip(load(key), ("Request", "Response"), strict=True):
        assert cls.__name__ == api.name + kind
        assert (key, (api.lowest, api.highest), api.flexible_since) == (cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE_SINCE)


def test_an_independent_codec_has_the_same_versions() -> None:
    judged, wrong = 0, []
    for key, api in APIS.items():
        for version in range(api.lowest, api.highest + 1):
            if not (JUDGE / api.module / f"v{version}").is_dir():
                continue
            judged += 1
            judge = getattr(import_module(f"kio.schema.{api.module}.v{version}.request"), api.name + "Request")
            if (judge.__api_key__, judge.__flexible__) != (key, is_flexible(key, version)):
                wrong.append((api.name, version))
    assert wrong == []
    assert judged > 200
