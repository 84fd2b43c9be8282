"""Names of broker settings that Kafka 3.x or 4.x knows and this broker does not serve.

A configuration for Kafka may have many of them. Each name causes a line in the log. Only a name with one of the `REFUSED_ENDINGS` prevents
the start. This module is loaded only when a name is not in the table of settings.
"""

from __future__ import annotations

_NAMES = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
advertised.host.name advertised.port
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
auto.include.jmx.reporter
background.threads
broker.heartbeat.interval.ms broker.id.generation.enable broker.session.timeout.ms
client.quota.callback.class
config.providers
control.plane.listener.name
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms controller.quorum.append.linger.ms
controller.quorum.auto.join.enable controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
controller.socket.timeout.ms
create.topic.policy.class.name
delete.records.purgatory.purge.interval.requests
early.start.listeners
eligible.leader.replicas.enable
fetch.purgatory.purge.interval.requests
follower.fetch.last.tiered.offset.enable
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
group.coordinator.new.enable group.coordinator.threads
group.share.enable group.share.max.groups group.share.persister.class.name
host.name
initial.broker.registration.timeout.ms
inter.broker.protocol.version
internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
kafka.csv.metrics.dir kafka.metrics.polling.interval.secs kafka.metrics.reporters
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.dir.failure.timeout.ms log.initial.task.delay.ms
log.message.downconversion.enable log.message.format.version log.message.timestamp.difference.max.ms
metadata.log.dir metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms
num.io.threads num.network.threads
port
principal.builder.class
process.roles
producer.purgatory.purge.interval.requests
queued.max.requests
quota.consumer.default quota.producer.default
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
replica.socket.receive.buffer.bytes replica.socket.timeout.ms
replication.quota.window.num replication.quota.window.size.seconds
reserved.broker.max.id
sasl.client.callback.handler.class sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.class sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.jitter sasl.mechanism.controller.protocol
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.jwt.validator.class
security.providers
server.max.startup.time.ms
share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes share.coordinator.state.topic.compression.codec
share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
ssl.allow.dn.changes ssl.allow.san.changes
ssl.engine.factory.class ssl.keymanager.algorithm
ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm
unclean.leader.election.interval.ms
unstable.api.versions.enable unstable.feature.versions.enable
zookeeper.clientCnxnSocket zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable zookeeper.ssl.cipher.suites
zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol
zookeeper.ssl.truststore.password zookeeper.sync.time.ms
"""

KNOWN_TO_KAFKA = frozenset(_NAMES.split())

PREFIXES = ("rlmm.config.", "rsm.config.", "config.providers.", "metrics.jmx.", "listener.name.", "confluent.")

REFUSED_ENDINGS = (".sasl.jaas.config", "sasl.server.callback.handler.class")
"""Endings of settings that authenticate clients. Such a setting prevents the start if it is not served."""

GUARDS_OF_IMAGES = frozenset(
    {"client.users", "client.passwords", "inter.broker.user", "inter.broker.password", "kraft.bootstrap.scram.users"}
)
"""Settings of container images that restrict access. The broker ignores them, so their notice is a warning."""


def is_known_to_kafka(name: str) -> bool:
    return name in KNOWN_TO_KAFKA or name.startswith(PREFIXES)
