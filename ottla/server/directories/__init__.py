"""The log directories of a broker: whose they are, whether they work, and replicas that move from one to another."""
