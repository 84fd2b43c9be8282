"""Benchmarks of brokers: the same loads by a stock client on Ottla, on a bare loop and on Apache Kafka."""
