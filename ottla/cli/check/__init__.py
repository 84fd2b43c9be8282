"""Commands that test: `check eos` tests any Kafka-compatible broker, `doctor` this machine."""
