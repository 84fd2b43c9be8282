package steps;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Makes clients and waits for things. Settings are given as "key", "value" pairs. */
final class Clients {
    static final Duration BRIEFLY = Duration.ofMillis(50);
    static final Duration LONG = Duration.ofSeconds(120);
    private static final long SECONDS_MAX = LONG.toSeconds();

    private final String bootstrap;
    private int names = 0;

    Clients(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    String fresh(String prefix) {
        return "java-" + prefix + "-" + names++;
    }

    private Map<String, Object> settings(String... pairs) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < pairs.length; at += 2) {
            all.put(pairs[at], pairs[at + 1]);
        }
        return all;
    }

    Admin admin() {
        return Admin.create(settings());
    }

    KafkaProducer<String, String> producer(String... pairs) {
        return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(String... pairs) {
        Map<String, Object> all = settings("auto.offset.reset", "earliest", "enable.auto.commit", "false", "fetch.max.wait.ms", "50");
        all.putAll(settings(pairs));
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** A member of a group under one of the two protocols. */
    KafkaConsumer<String, String> member(String protocol, String group, String... pairs) {
        List<String> all = new ArrayList<>(List.of("group.id", group, "group.protocol", protocol));
        if (protocol.equals("classic")) {
            all.addAll(List.of("heartbeat.interval.ms", "100", "session.timeout.ms", "6000"));
        }
        all.addAll(List.of(pairs));
        return consumer(all.toArray(String[]::new));
    }

    /** A member of a share group. */
    KafkaShareConsumer<String, String> sharer(String group, String... pairs) {
        Map<String, Object> all = settings("group.id", group, "fetch.max.wait.ms", "50");
        all.putAll(settings(pairs));
        return new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** A share group with these settings; it starts with the first record unless they say something else. */
    String shareGroup(String... pairs) throws Exception {
        String group = fresh("share");
        alterGroup(group, "share.auto.offset.reset", "earliest");
        alterGroup(group, pairs);
        return group;
    }

    /** Sets names and values, each name before its value. */
    void alterGroup(String group, String... pairs) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int at = 0; at < pairs.length; at += 2) {
            changes.add(new AlterConfigOp(new ConfigEntry(pairs[at], pairs[at + 1]), AlterConfigOp.OpType.SET));
        }
        if (changes.isEmpty()) {
            return;
        }
        try (Admin admin = admin()) {
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes)).all().get();
        }
    }

    String topic(int partitions) throws Exception {
        String name = fresh("topic");
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        }
        return name;
    }

    /** A topic that share groups may have as their dead-letter topic. */
    String deadLetterTopic() throws Exception {
        String name = "dlq." + fresh("topic");
        try (Admin admin = admin()) {
            NewTopic topic = new NewTopic(name, 1, (short) 1).configs(Map.of("errors.deadletterqueue.group.enable", "true"));
            admin.createTopics(List.of(topic)).all().get();
        }
        return name;
    }

    /** Values 0, 1, 2 ... to partition 0; answers their offsets. */
    List<Long> send(String topic, int count, String... pairs) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(pairs)) {
            for (int number = 0; number < count; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, "k", String.valueOf(number))));
            }
            for (Future<RecordMetadata> one : sent) {
                offsets.add(one.get().offset());
            }
        }
        return offsets;
    }

    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        until(() -> {
            consumer.poll(BRIEFLY).forEach(found::add);
            return found.size() >= count;
        });
        return found;
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    /** All of partition 0, up to where it ends now for a reader of this isolation. */
    List<ConsumerRecord<String, String>> readAll(String topic, String isolation) throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", isolation, "check.crcs", "true")) {
            consumer.assign(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            until(() -> {
                consumer.poll(BRIEFLY).forEach(found::add);
                return consumer.position(place) >= end;
            });
        }
        return found;
    }

    static void until(Callable<Boolean> isDone) throws Exception {
        long deadline = System.nanoTime() + SECONDS_MAX * 1_000_000_000L;
        while (!isDone.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + SECONDS_MAX + " s");
            }
        }
    }
}
