"""Clones topics of any Kafka into a data directory, with the same offsets.

No broker runs on the directory meanwhile. Batches are read as a consumer reads them and appended as a follower appends them, byte for byte
unless records are changed (`partition_copy.py`). So offsets, leader epochs, timestamps, headers, producers and markers are the source's.
The directory is made for a single broker (`directory.py`).

An unfinished clone is in `DIR.partial`: the plan (`plan.py`) and the logs so far. The next clone with the same options continues
there. `DIR` appears with one rename at the end.
"""
