"""Exactly-once as a black box: what a stock client must see of any Kafka-compatible broker, one check a promise.

`checks.py` is the list and runs it; the promises are in `visibility.py`, `fencing.py`, `time_out.py`, `offsets.py` and `retry.py`;
`world.py` makes topics and clients, `proxy.py` cuts connections, `verdict.py` is what a check may say.
"""
