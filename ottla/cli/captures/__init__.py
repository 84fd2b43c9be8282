"""Reads packet captures of Kafka's protocol. `optional.py` loads it."""
