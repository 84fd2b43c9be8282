"""`ottla bench producer|consumer|share-consumer|e2e`: Kafka's performance tools with their options and their exact result lines.

They measure this client together with the broker, from one thread; -o json gives the same figures as one object.
"""

from __future__ import annotations

from ottla.cli.bench import consumer, e2e, producer, share_consumer

COMMANDS = {
    "producer": producer.COMMAND,
    "consumer": consumer.COMMAND,
    "share-consumer": share_consumer.COMMAND,
    "e2e": e2e.COMMAND,
}
