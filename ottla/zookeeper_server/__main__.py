"""`python -m ottla.zookeeper_server FILE PORT`: serves the store in FILE on the loopback address until SIGTERM.

If the environment variable OTTLA_ZOOKEEPER_DIGEST is `user:password`, clients must send this digest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from ottla.adapters.durable_tree import DurableTree
from ottla.base.errors import StorageError
from ottla.zookeeper_server.server import ZooKeeperServer

HOST = "127.0.0.1"
DIGEST_VARIABLE = "OTTLA_ZOOKEEPER_DIGEST"


async def serve(path: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT. Raises `OSError` if the port is taken, `StorageError` if the file cannot be read."""
    server = ZooKeeperServer(DurableTree(path), os.environ.get(DIGEST_VARIABLE))
    is_over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, is_over.set)
    try:
        await server.start(HOST, port)
        await is_over.wait()
    finally:
        server.stop()


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
        print("usage: python -m ottla.zookeeper_server FILE PORT", file=sys.stderr)
        return 2
    try:
        asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
    except (OSError, OverflowError, StorageError) as error:  # OverflowError: a port above 65535
        logging.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
