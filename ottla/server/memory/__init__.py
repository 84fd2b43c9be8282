"""The memory of connections, for unfinished requests and unsent answers, and the order of eviction when memory is short."""
