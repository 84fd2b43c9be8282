"""Prints what commands have found: in our own forms (`ottla.py`), or as Kafka's tools do (`kafka.py`)."""
