"""Authentication and authorization: principals, operations and resources, the authorizer, SCRAM. No sockets."""
