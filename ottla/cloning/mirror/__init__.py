"""Mirrors topics of a running cluster to another running cluster, continuously. A mirror is a client of both clusters and stores nothing
itself: it continues where the target's log ends (`mirror.py`). To Ottla it sends the source's batches unchanged, with offsets and leader
epochs (`exact_target.py`). To another Kafka it produces the records with the same offsets, and fills gaps with markers of empty
transactions (`produced_target.py`). Topics, settings and partitions are in `topics.py`, committed offsets in `group_offsets.py`, the thread
that reads the source in `reading.py`, lag and metrics in `state.py`.
"""
