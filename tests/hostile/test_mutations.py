"""Sends valid requests of every API and version with random changes: the broker answers or closes the connection, and no other client is
affected. The changes are seeded, so that a failure can be repeated; `OTTLA_MUTATIONS` frames are made of each request. After each API
`conftest.py` checks that the broker runs, serves honest clients, has no traceback in its log and has not grown.
"""

from __future__ import annotations

import os
import random
import struct

import pytest

from ottla.handlers.served_apis import TABLE
from ottla.wire.apis import EXTENSIONS_SINCE
from ottla.wire.codec import encoder
from ottla.wire.framing import write_request
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_world import World
from tests.clients.wire_client import WireClient

MUTATIONS = int(os.environ.get("OTTLA_MUTATIONS", "20"))
KEPT_BYTES = 12  # size, key, version, correlation id
WAIT_SECONDS = 0.1
JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT = 11, 68
JOINING = (JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT)
PROBE_ID = 77
PROBE = struct.pack(">ihhih", 10, 18, 0, PROBE_ID, -1)
EXTREMES = [struct.pack(">i", value) for value in (-1, -2, 0, 2**31 - 1, -(2**31), 1 << 24)] + [b"\xff" * 10, b"\xff\xff\xff\xff\x0f"]


def mutant(frame: bytes, source: random.Random) -> bytes:
    """Returns the frame with one to three changes behind the fields that name the request, and with a correct size."""
    data = bytearray(frame[KEPT_BYTES:])
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(data) + 1)
        kind = source.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << source.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            extreme = source.choice(EXTREMES)
            data[at : at + len(extreme)] = extreme
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:at] = source.randbytes(source.randint(1, 9))
        else:
            data[at:at] = data[at : at + source.randint(1, 60)] * source.randint(1, 3)
    return struct.pack(">i", len(data) + KEPT_BYTES - 4) + frame[4:KEPT_BYTES] + bytes(data)


def is_answered(client: WireClient, frame: bytes) -> bool:
    """Whether the connection can be used for another request. False if it was closed, or if the request waits."""
    try:
        client.send(frame + PROBE)
        while (answer := client.receive()) is not None:
            if struct.unpack_from(">i", answer)[0] == PROBE_ID:
                return True
    except OSError:
        pass
    return False


def connected(broker: BrokerProcess, key: int) -> WireClient:
    """Returns a connection to a listener that supports the API key."""
    client = WireClient(broker.port)
    if key >= EXTENSIONS_SINCE:
        client.ask_for_extensions()
    client.socket.settimeout(WAIT_SECONDS)
    return client


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: TABLE[key].name)
def test_mutants_of_every_request(attacked: BrokerProcess, honest: World, key: int) -> None:
    source = random.Random(key)
    client = connected(attacked, key)
    for version in range(TABLE[key].min_version, TABLE[key].max_version + 1):
        request = honest.request(key, version)
        frame = write_request(key, version, 7, "mutant", encoder(type(request), version)(request))
        if key in JOINING:
            frame = frame.replace(b"group-", b"guest-")  # a member that never sends heartbeats must not delay the group of an honest client
        for _ in range(MUTATIONS):
            changed = mutant(frame, source)
            if not is_answered(client, changed):
                client.socket.close()
                assert attacked.is_running, (version, changed.hex())
                client = connected(attacked, key)
    client.socket.close()
    assert attacked.is_running
