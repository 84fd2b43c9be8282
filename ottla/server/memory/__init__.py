"""The memory of connections: unfinished requests and unsent answers, and which are dropped first when memory is short."""
