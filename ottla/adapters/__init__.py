"""The only modules that touch clocks, files, sockets and the real metadata stores: one for each port."""
