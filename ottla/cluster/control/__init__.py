"""Messages of the controller to brokers: how they wait, are sent, put together, refused and applied."""
