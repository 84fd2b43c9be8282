"""Benchmarks of a broker: loads by a stock client, on this broker, on a bare loop and on Apache Kafka."""
