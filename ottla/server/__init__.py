"""The asyncio shell round the core: sockets, dispatch, waiting, start and stop."""
