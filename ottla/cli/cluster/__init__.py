"""Commands on a cluster: brokers, features, replicas, log directories, settings, quotas, users."""
