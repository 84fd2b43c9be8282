"""Handlers of the APIs of topics, partitions and replicas."""
