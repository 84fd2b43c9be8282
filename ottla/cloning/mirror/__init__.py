"""Mirrors topics of a running cluster into another running cluster, for good.

A mirror is a client of both clusters and stores nothing itself: the end of the target's log says where it continues (`mirror.py`). Into
Ottla it sends the source's batches as they are, with offsets and leader epochs (`exact_target.py`). Into another Kafka it produces the
records with the same offsets, and fills gaps with markers of empty transactions (`produced_target.py`). Topics, settings and partitions are
in `topics.py`, committed offsets in `group_offsets.py`, the thread that reads the source in `reading.py`, lag and metrics in `state.py`.
"""
