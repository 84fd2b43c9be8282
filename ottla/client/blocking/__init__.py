"""The blocking client: performs the network I/O for `client.core`, for the command line, scripts, and Spark's driver and tasks. It needs no
event loop.
"""
