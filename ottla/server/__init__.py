"""The broker's process: it connects the synchronous core with sockets, threads and timers of asyncio, executes requests, starts and
stops."""
