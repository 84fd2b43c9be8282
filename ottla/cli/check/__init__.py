"""Commands that judge: `check eos` any Kafka-compatible broker, `doctor` this machine."""
