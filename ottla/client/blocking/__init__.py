"""The shell for code that may block: command line, scripts, Spark's driver and tasks. Sockets with timeouts, one thread, no loop."""
