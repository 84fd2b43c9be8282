"""Handlers of the APIs of the cluster: versions, brokers, and the controller's requests to brokers."""
