"""The log directories of a broker: their owner and state, and moves of replicas between them."""
