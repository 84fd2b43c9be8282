"""Damage in the logs of a broker: looking for it, checking segments, repairing them from other replicas."""
