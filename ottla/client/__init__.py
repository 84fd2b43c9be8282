"""A synchronous Kafka client of our own: connections, cluster, producer, consumer, admin. Imports nothing here, for fast starts."""
