"""Clocks, files, sockets, threads and metadata stores of a real broker: the ports of `base/ports.py` on this machine."""
