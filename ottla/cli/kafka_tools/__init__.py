"""Kafka's command-line tools under their own names, such as `ottla kafka-topics`, with their options and their output."""
