"""`ottla bench`: Kafka's performance tools."""
