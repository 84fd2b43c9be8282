"""Commands that run one broker: start, dev, stop, status, reset, service."""
