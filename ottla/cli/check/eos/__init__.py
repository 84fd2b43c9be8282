"""Checks of exactly-once on any Kafka-compatible broker, through a stock client; one check per promise.

`checks.py` is the list and runs it; the promises are in `visibility.py`, `fencing.py` and `offsets.py`;
`world.py` makes topics and clients, `proxy.py` cuts connections, `verdict.py` has the results of a check.
"""
