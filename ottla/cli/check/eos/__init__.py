"""Checks of exactly-once on any Kafka-compatible broker, through a stock client; one check per promise.

`checks.py` is the list and runs it; the promises are in `promises.py`;
`world.py` makes topics and clients and has the results of a check, `proxy.py` cuts connections.
"""
