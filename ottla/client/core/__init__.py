"""The client's protocol without I/O: bytes in, answers out; what to send next, to whom, and when to try again.

Nothing here imports a socket, a clock, a thread or an event loop (an import contract holds that). Shells do the I/O: `client.blocking` and
`client.aio` for programs, `client.loop` for a broker's connections to others.
"""
