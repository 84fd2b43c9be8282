"""Imports kafka-python for tests in their own process without its warnings, and makes it close each socket that it opens.

A client of kafka-python 3.0 that is closed while it connects drops the task that connects, and the socket with it. Python would
close the socket at some later garbage collection, in another test, and warn there.
"""

from __future__ import annotations

import socket
import warnings
from typing import Any

with warnings.catch_warnings():
    # kafka-python reads its schemas, as it is imported, by a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient
    from kafka.net.inet import KafkaNetSocket
    from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

__all__ = ["BROKER_API_VERSIONS", "KafkaAdminClient", "KafkaNetSocket"]

_connect = KafkaNetSocket.sock_connect


async def _connect_or_close(net_socket: KafkaNetSocket, net: Any, connecting: socket.socket, *rest: Any, **settings: Any) -> socket.socket:
    try:
        connected: socket.socket = await _connect(net_socket, net, connecting, *rest, **settings)
    except BaseException:  # GeneratorExit too: it is raised in a task that is dropped
        connecting.close()
        raise
    return connected


KafkaNetSocket.sock_connect = _connect_or_close
