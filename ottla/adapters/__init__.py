"""The only modules that touch clocks, files, sockets and the metadata store's real keepers: one for each port."""
