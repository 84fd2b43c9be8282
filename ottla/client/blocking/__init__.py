"""The shell for code that may block: command line, scripts, Spark's driver and tasks. It needs no event loop."""
