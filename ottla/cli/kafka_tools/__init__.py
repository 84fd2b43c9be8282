"""Kafka's tools under their own names, with their options and their output."""
