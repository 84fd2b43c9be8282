"""Clones topics of any Kafka into a data directory, with the same offsets.

No broker runs on the directory meanwhile. Batches are read as a consumer reads them and appended as a follower appends them, byte for byte
unless records are changed (`partition_copy.py`). The clone therefore has the source's offsets, leader epochs, timestamps, headers, producer
ids and markers. The directory is made for a single broker (`directory.py`). An unfinished clone is in `DIR.partial`, which has the plan
(`plan.py`) and the logs so far. The next clone with the same options continues in this directory. `DIR` appears with one rename at the end.
"""
