package steps;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions: commit, abort, fencing, offsets that travel in them, and a copy that is exact in spite of aborts. */
final class Transactions {
    private static final int COPIED = 2000;
    private final Clients clients;

    Transactions(Clients clients) {
        this.clients = clients;
    }

    void addTo(Steps steps) {
        steps.add("commit and abort", this::commitAndAbort);
        steps.add("open", this::open);
        steps.add("fenced", this::fenced);
        for (String protocol : List.of("classic", "consumer")) {
            steps.add("copy " + protocol, () -> copy(protocol));
        }
    }

    private KafkaProducer<String, String> transactional(String id) {
        KafkaProducer<String, String> producer = clients.producer("transactional.id", id, "linger.ms", "5");
        producer.initTransactions();
        return producer;
    }

    private Object commitAndAbort() throws Exception {
        String topic = clients.topic(1);
        try (KafkaProducer<String, String> producer = transactional(clients.fresh("transaction"))) {
            for (int number = 0; number < 4; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, "k", number + "a"));
                producer.send(new ProducerRecord<>(topic, 0, "k", number + "b"));
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        List<ConsumerRecord<String, String>> all = clients.readAll(topic, "read_uncommitted");
        return Clients.values(clients.readAll(topic, "read_committed")) + " " + all.stream().map(ConsumerRecord::offset).toList();
    }

    /** Records behind an open transaction wait for it, and the broker shows which. */
    private Object open() throws Exception {
        String topic = clients.topic(1);
        String id = clients.fresh("transaction");
        TopicPartition place = new TopicPartition(topic, 0);
        List<Object> seen = new ArrayList<>();
        try (KafkaProducer<String, String> producer = transactional(id); Admin admin = clients.admin()) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "k", "open")).get();
            clients.send(topic, 1);
            seen.add(clients.readAll(topic, "read_committed").size());
            seen.add(admin.listTransactions().all().get().stream().anyMatch(one -> one.transactionalId().equals(id)));
            seen.add(admin.describeTransactions(List.of(id)).all().get().get(id).state());
            seen.add(admin.describeTransactions(List.of(id)).all().get().get(id).topicPartitions().equals(Set.of(place)));
            producer.commitTransaction();
            Clients.until(() -> clients.readAll(topic, "read_committed").size() == 2);
        }
        return seen;
    }

    private Object fenced() throws Exception {
        String topic = clients.topic(1);
        String id = clients.fresh("transaction");
        KafkaProducer<String, String> old = transactional(id);
        old.beginTransaction();
        old.send(new ProducerRecord<>(topic, 0, "k", "old")).get();
        String seen = "not fenced";
        try (KafkaProducer<String, String> young = transactional(id)) {
            young.beginTransaction();
            young.send(new ProducerRecord<>(topic, 0, "k", "young"));
            young.commitTransaction();
            try {
                old.commitTransaction();
            } catch (KafkaException error) {
                seen = error.getClass().getSimpleName();
            }
        }
        old.close();
        return seen + " " + Clients.values(clients.readAll(topic, "read_committed"));
    }

    /** Consume, transform, produce; every fourth transaction or so is aborted, and what it had read is read again. */
    private Object copy(String protocol) throws Exception {
        String source = clients.topic(1);
        String target = clients.topic(1);
        String group = clients.fresh("group");
        Random random = new Random(7);
        int aborted = 0;
        clients.send(source, COPIED);
        try (KafkaProducer<String, String> producer = transactional(clients.fresh("transaction"));
             KafkaConsumer<String, String> consumer = clients.member(protocol, group, "max.poll.records", "50")) {
            consumer.subscribe(List.of(source));
            for (int copied = 0; copied < COPIED; ) {
                ConsumerRecords<String, String> records = consumer.poll(Clients.BRIEFLY);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<String, String> one : records) {
                    producer.send(new ProducerRecord<>(target, 0, one.key(), String.valueOf(2 * Integer.parseInt(one.value()))));
                }
                producer.sendOffsetsToTransaction(positions(consumer), consumer.groupMetadata());
                producer.flush();
                if (random.nextInt(4) == 0) {
                    producer.abortTransaction();
                    rewind(consumer);
                    aborted++;
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
        List<String> wanted = IntStream.range(0, COPIED).mapToObj(number -> String.valueOf(2 * number)).toList();
        return Clients.values(clients.readAll(target, "read_committed")).equals(wanted) && aborted > 3;
    }

    private static Map<TopicPartition, OffsetAndMetadata> positions(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (TopicPartition place : consumer.assignment()) {
            found.put(place, new OffsetAndMetadata(consumer.position(place)));
        }
        return found;
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        consumer.committed(consumer.assignment()).forEach((place, committed) -> consumer.seek(place, committed == null ? 0 : committed.offset()));
    }
}
