"""Checks of exactly-once on any Kafka-compatible broker, one check per promise. They use a stock client; only `late-end` sends requests of
its own, which a stock client cannot send.

`checks.py` lists and runs the checks, which are functions of `promises.py`. `world.py` makes topics and clients, and has the possible
results of a check. `proxy.py` cuts connections.
"""
