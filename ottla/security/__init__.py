"""Who a request comes from and what it may do: principals, operations and resources, the authorizer, SCRAM. No sockets."""
