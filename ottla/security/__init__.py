"""Authentication and authorization: principals, SASL mechanisms, ACLs, quotas. This package opens no sockets."""
