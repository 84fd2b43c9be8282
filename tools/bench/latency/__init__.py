"""`make bench-latency`: the time from a record's production until a consumer of the output has it, for four programs that copy a topic."""
