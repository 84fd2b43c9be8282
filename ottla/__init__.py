"""Ottla: Kafka's system in Python. Imports nothing, so that starting anything below costs only what it uses."""
