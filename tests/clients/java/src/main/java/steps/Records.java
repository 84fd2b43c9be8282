package steps;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;

/** What is produced comes back as it was. */
final class Records {
    private final Clients clients;

    Records(Clients clients) {
        this.clients = clients;
    }

    void addTo(Steps steps) {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            steps.add("codec " + codec, () -> codec(codec));
        }
        for (String acks : List.of("0", "1", "all")) {
            steps.add("acks " + acks, () -> acks(acks));
        }
        steps.add("record", this::record);
        steps.add("idempotent", this::idempotent);
        steps.add("seek", this::seek);
        steps.add("times", this::times);
        steps.add("large", this::large);
    }

    private Object codec(String codec) throws Exception {
        String topic = clients.topic(1);
        clients.send(topic, 500, "compression.type", codec, "linger.ms", "20");
        List<String> values = Clients.values(clients.readAll(topic, "read_uncommitted"));
        return values.equals(LongStream.range(0, 500).mapToObj(String::valueOf).toList());
    }

    private Object acks(String acks) throws Exception {
        String topic = clients.topic(1);
        clients.send(topic, 3, "acks", acks, "enable.idempotence", "false");
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return Clients.values(Clients.read(consumer, 3));
        }
    }

    private Object record() throws Exception {
        String topic = clients.topic(1);
        try (KafkaProducer<String, String> producer = clients.producer()) {
            RecordHeader header = new RecordHeader("h", "1".getBytes(StandardCharsets.UTF_8));
            producer.send(new ProducerRecord<>(topic, 0, 1_600_000_000_123L, "k", "v", List.of(header, new RecordHeader("n", (byte[]) null))));
            producer.send(new ProducerRecord<>(topic, 0, "tombstone", null));
            producer.send(new ProducerRecord<>(topic, 0, null, ""));
        }
        List<Object> seen = new ArrayList<>();
        for (ConsumerRecord<String, String> one : clients.readAll(topic, "read_uncommitted")) {
            seen.add(one.offset() + "=" + one.key() + "," + one.value() + "," + one.headers().toArray().length);
        }
        return seen;
    }

    private Object idempotent() throws Exception {
        String topic = clients.topic(1);
        List<Long> offsets = clients.send(topic, 5000, "enable.idempotence", "true", "acks", "all", "batch.size", "1000");
        return offsets.equals(LongStream.range(0, 5000).boxed().toList());
    }

    private Object seek() throws Exception {
        String topic = clients.topic(1);
        clients.send(topic, 20);
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = clients.consumer("max.poll.records", "4")) {
            consumer.assign(List.of(place));
            Clients.read(consumer, 4);
            consumer.seek(place, 13);
            List<String> values = Clients.values(Clients.read(consumer, 4));
            consumer.seekToEnd(List.of(place));
            long end = consumer.position(place);
            consumer.seekToBeginning(List.of(place));
            return values + " " + end + " " + consumer.position(place);
        }
    }

    private Object times() throws Exception {
        String topic = clients.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = clients.producer()) {
            for (int number = 0; number < 10; number++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_600_000_000_000L + 1000L * number, "k", "v"));
            }
        }
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            List<Object> seen = new ArrayList<>();
            for (long after : List.of(0L, 3500L, 99_000L)) {
                Map<TopicPartition, ?> found = consumer.offsetsForTimes(Map.of(place, 1_600_000_000_000L + after));
                seen.add(found.get(place));
            }
            return seen;
        }
    }

    private Object large() throws Exception {
        String topic = clients.topic(1);
        String value = "x".repeat(5_000_000);
        try (KafkaProducer<String, String> producer = clients.producer("max.request.size", "9000000", "buffer.memory", "64000000")) {
            producer.send(new ProducerRecord<>(topic, 0, "k", value)).get();
        }
        return clients.readAll(topic, "read_uncommitted").get(0).value().equals(value);
    }
}
