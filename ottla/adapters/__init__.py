"""Clocks, files, sockets, threads and metadata stores of a real broker. They implement the interfaces of `base/ports.py`, which the broker
uses instead of the operating system. The simulation in the tests has other implementations.
"""
