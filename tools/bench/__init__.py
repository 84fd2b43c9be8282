"""Benchmarks of brokers: a stock client sends the same loads to Ottla, to Apache Kafka, and to a bare loop, a minimal process that only
moves bytes (`bare_loop.py`).
"""
