"""A server of ZooKeeper's protocol over the embedded metadata store: one server without an ensemble, for the brokers of one machine."""
