"""The controller's messages to brokers: queues, sends, receives, refuses and executes them."""
