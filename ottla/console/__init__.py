"""The console: pages in a browser that show a Kafka cluster and act on it. A process of its own, which asks the cluster as any client."""
