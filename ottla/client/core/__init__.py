"""The client's protocol without I/O: it parses answers, chooses each request and its broker, and decides about retries.

No module in this package imports a socket, a clock, a thread or an event loop; an import contract checks that. Other packages, called
shells, do the I/O: `client.blocking` and `client.aio` for programs, `server/peer_connection.py` for a broker's connections to others.
"""
