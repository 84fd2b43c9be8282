"""`ottla bench`: Kafka's performance tools, with their options and result lines; from one thread, they measure client and broker."""
