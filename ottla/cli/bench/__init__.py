"""`ottla bench`: Kafka's performance tools, with their options and result lines. The figures include the time of this Python client."""
