package steps;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;

/** What members of share groups are given, and what becomes of what they say about it. A record is seen as "value:number of the delivery". */
final class ShareGroups {
    private static final String[] EXPLICIT = {"share.acknowledgement.mode", "explicit"};
    private final Clients clients;

    ShareGroups(Clients clients) {
        this.clients = clients;
    }

    void addTo(Steps steps) {
        steps.add("implicit", this::implicit);
        steps.add("explicit", this::explicit);
        steps.add("renew", this::renew);
        steps.add("delivery count", this::deliveryCount);
        steps.add("two members", this::twoMembers);
        steps.add("lock time-out", this::lockTimeout);
        steps.add("closing", this::closing);
        steps.add("record limit", this::recordLimit);
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            steps.add("isolation " + isolation, () -> isolation(isolation));
        }
        steps.add("reset latest", this::latest);
        steps.add("reset by_duration", this::byDuration);
        steps.add("callback", this::callback);
        steps.add("dead letters", this::deadLetters);
    }

    static String seen(ConsumerRecord<String, String> record) {
        return record.value() + ":" + record.deliveryCount().map(String::valueOf).orElse("?");
    }

    static List<ConsumerRecord<String, String>> take(KafkaShareConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        Clients.until(() -> {
            consumer.poll(Clients.BRIEFLY).forEach(found::add);
            return found.size() >= count;
        });
        return found;
    }

    /** What the first answer with records has. A second poll would let the client ask for more before it gives out what it has. */
    static List<ConsumerRecord<String, String>> takeAtOnce(KafkaShareConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        consumer.poll(Clients.LONG).forEach(found::add);
        return found;
    }

    /** What comes within a while in which something would. */
    static List<String> rest(KafkaShareConsumer<String, String> consumer) {
        List<String> found = new ArrayList<>();
        for (int round = 0; round < 6; round++) {
            consumer.poll(Clients.BRIEFLY).forEach(record -> found.add(seen(record)));
        }
        return found;
    }

    private static List<String> all(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ShareGroups::seen).toList();
    }

    /** Counts the members with this number of partitions; 0 before a member has joined. */
    static long assigned(Admin admin, String group, int partitions) throws Exception {
        try {
            return admin.describeShareGroups(List.of(group)).all().get().get(group).members().stream()
                .filter(member -> member.assignment().topicPartitions().size() == partitions).count();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof GroupIdNotFoundException) {
                return 0;
            }
            throw error;
        }
    }

    /** "ok" or the name of the error, for the only partition. */
    static String outcome(Map<TopicIdPartition, Optional<KafkaException>> results) {
        return results.values().stream().map(error -> error.map(e -> e.getClass().getSimpleName()).orElse("ok")).toList().toString();
    }

    private Object implicit() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup();
        clients.send(topic, 3);
        List<Object> found = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
            consumer.subscribe(List.of(topic));
            found.add(all(take(consumer, 3)));
            found.add(rest(consumer));
            clients.send(topic, 1);
            found.add(all(take(consumer, 1)));
            found.add(outcome(consumer.commitSync()));
        }
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
            consumer.subscribe(List.of(topic));
            found.add(rest(consumer));
        }
        return found;
    }

    private Object explicit() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup();
        clients.send(topic, 4);
        List<Object> found = new ArrayList<>();
        AcknowledgeType[] types = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RELEASE};
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group, EXPLICIT)) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> records = take(consumer, 4);
            for (ConsumerRecord<String, String> record : records) {
                consumer.acknowledge(record, types[(int) record.offset()]);
            }
            found.add(outcome(consumer.commitSync()));
            List<ConsumerRecord<String, String>> again = take(consumer, 2);
            found.add(all(again));
            try {
                consumer.poll(Clients.BRIEFLY);
            } catch (IllegalStateException error) {
                found.add("not before all are acknowledged");
            }
            again.forEach(consumer::acknowledge);
            found.add(outcome(consumer.commitSync()));
            found.add(rest(consumer));
        }
        return found;
    }

    /** A lock of five seconds is held for longer, and no other member gets the record; the client returns renewed records again. */
    private Object renew() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup("share.record.lock.duration.ms", "5000");
        clients.send(topic, 1);
        List<Object> found = new ArrayList<>();
        try (KafkaShareConsumer<String, String> first = clients.sharer(group, EXPLICIT);
                KafkaShareConsumer<String, String> second = clients.sharer(group)) {
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            ConsumerRecord<String, String> record = take(first, 1).get(0);
            found.add(first.acquisitionLockTimeoutMs().orElse(-1));
            for (int round = 0; round < 3; round++) {
                Thread.sleep(1800);
                first.acknowledge(record, AcknowledgeType.RENEW);
                found.add(outcome(first.commitSync()));
                record = take(first, 1).get(0);
                found.add(seen(record));
                second.poll(Clients.BRIEFLY).forEach(other -> found.add("taken away"));
            }
            first.acknowledge(record);
            found.add(outcome(first.commitSync()));
            found.add(rest(second));
        }
        return found;
    }

    private Object deliveryCount() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup("share.delivery.count.limit", "3");
        clients.send(topic, 1);
        List<Object> found = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group, EXPLICIT)) {
            consumer.subscribe(List.of(topic));
            for (int delivery = 1; delivery <= 3; delivery++) {
                ConsumerRecord<String, String> record = take(consumer, 1).get(0);
                found.add(seen(record));
                consumer.acknowledge(record, AcknowledgeType.RELEASE);
            }
            found.add(rest(consumer));
        }
        return found;
    }

    /** Both read the same partition at the same time; neither gets records that the other has locked. */
    private Object twoMembers() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup();
        String[] few = {"share.acknowledgement.mode", "explicit", "max.poll.records", "10", "share.acquire.mode", "record_limit"};
        Set<Long> offsets = new TreeSet<>();
        int[] counts = new int[2];
        try (KafkaShareConsumer<String, String> first = clients.sharer(group, few);
                KafkaShareConsumer<String, String> second = clients.sharer(group, few)) {
            List<KafkaShareConsumer<String, String>> members = List.of(first, second);
            members.forEach(member -> member.subscribe(List.of(topic)));
            waitForAssignments(members, group);
            clients.send(topic, 200);
            Clients.until(() -> {
                for (int number = 0; number < 2; number++) {
                    for (ConsumerRecord<String, String> record : members.get(number).poll(Clients.BRIEFLY)) {
                        if (!offsets.add(record.offset())) {
                            throw new AssertionError("delivered twice: " + seen(record));
                        }
                        members.get(number).acknowledge(record);
                        counts[number]++;
                    }
                }
                return offsets.size() == 200;
            });
        }
        return offsets.size() + " both=" + (counts[0] > 0 && counts[1] > 0);
    }

    /** Waits until the coordinator has assigned partition 0 to all members; their next heartbeats bring it. */
    private void waitForAssignments(List<KafkaShareConsumer<String, String>> members, String group) throws Exception {
        try (Admin admin = clients.admin()) {
            Clients.until(() -> {
                members.forEach(member -> member.poll(Clients.BRIEFLY));
                return assigned(admin, group, 1) == members.size();
            });
        }
    }

    /** How often a record was delivered by now depends on the speed of the machine: the first member may have asked for it again. */
    private Object lockTimeout() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup("share.record.lock.duration.ms", "2000");
        clients.send(topic, 2);
        List<Object> found = new ArrayList<>();
        try (KafkaShareConsumer<String, String> first = clients.sharer(group, EXPLICIT);
                KafkaShareConsumer<String, String> second = clients.sharer(group, EXPLICIT)) {
            first.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> mine = takeAtOnce(first);
            clients.alterGroup(group, "share.record.lock.duration.ms", "15000"); // that of the second outlasts a slow machine
            second.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> theirs = take(second, 2);
            theirs.forEach(record -> found.add(record.value() + (record.deliveryCount().orElse((short) 0) > 1 ? " again" : " anew")));
            mine.forEach(first::acknowledge);
            found.add(outcome(first.commitSync()));
            theirs.forEach(second::acknowledge);
            found.add(outcome(second.commitSync()));
        }
        return found;
    }

    /** What was not acknowledged is another's as soon as its reader has closed. */
    private Object closing() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup();
        clients.send(topic, 3);
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group, EXPLICIT)) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> records = take(consumer, 3);
            consumer.acknowledge(records.get(1));
        }
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
            consumer.subscribe(List.of(topic));
            return all(take(consumer, 2));
        }
    }

    /** A member that asks for no more than two records of a batch leaves the others untouched. */
    private Object recordLimit() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup();
        clients.send(topic, 4, "linger.ms", "1000");
        List<Object> found = new ArrayList<>();
        try (KafkaShareConsumer<String, String> first = clients.sharer(group, "max.poll.records", "2", "share.acquire.mode", "record_limit");
                KafkaShareConsumer<String, String> second = clients.sharer(group)) {
            first.subscribe(List.of(topic));
            found.add(all(takeAtOnce(first)));
            second.subscribe(List.of(topic));
            found.add(all(take(second, 2)));
        }
        return found;
    }

    private Object isolation(String level) throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup("share.isolation.level", level);
        try (KafkaProducer<String, String> producer = clients.producer("transactional.id", clients.fresh("id"))) {
            producer.initTransactions();
            for (String value : List.of("committed", "aborted", "also committed")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, "k", value)).get();
                if (value.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "k", "open")).get();
            List<Object> found = new ArrayList<>();
            try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
                consumer.subscribe(List.of(topic));
                found.add(all(take(consumer, level.equals("read_committed") ? 2 : 4)));
                found.add(rest(consumer));
                producer.commitTransaction();
                clients.send(topic, 1);
                found.add(all(take(consumer, level.equals("read_committed") ? 2 : 1)));
            }
            return found;
        }
    }

    private Object latest() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup("share.auto.offset.reset", "latest");
        clients.send(topic, 2);
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
            consumer.subscribe(List.of(topic));
            List<Object> found = new ArrayList<>(List.of(rest(consumer)));
            // The first fetch that reaches the leader fixes where the group starts; no answer shows when.
            Clients.until(() -> {
                clients.send(topic, 1);
                return !rest(consumer).isEmpty();
            });
            return found;
        }
    }

    private Object byDuration() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup("share.auto.offset.reset", "by_duration:PT1H");
        long now = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = clients.producer()) {
            producer.send(new ProducerRecord<>(topic, 0, now - 7_200_000, "k", "two hours ago")).get();
            producer.send(new ProducerRecord<>(topic, 0, now - 1_800_000, "k", "half an hour ago")).get();
            producer.send(new ProducerRecord<>(topic, 0, now, "k", "now")).get();
        }
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
            consumer.subscribe(List.of(topic));
            return all(take(consumer, 2));
        }
    }

    /** A rejected record and one that was released too often are copied, an accepted one is not. */
    private Object deadLetters() throws Exception {
        String topic = clients.topic(1);
        String copies = clients.deadLetterTopic();
        String group = clients.shareGroup("errors.deadletterqueue.topic.name", copies, "errors.deadletterqueue.copy.record.enable", "true",
            "share.delivery.count.limit", "2");
        clients.send(topic, 3);
        AcknowledgeType[] types = {AcknowledgeType.REJECT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE};
        List<Object> found = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group, EXPLICIT)) {
            consumer.subscribe(List.of(topic));
            take(consumer, 3).forEach(record -> consumer.acknowledge(record, types[(int) record.offset()]));
            found.add(outcome(consumer.commitSync()));
            consumer.acknowledge(take(consumer, 1).get(0), AcknowledgeType.RELEASE);
            found.add(outcome(consumer.commitSync()));
        }
        Clients.until(() -> clients.readAll(copies, "read_committed").size() == 2);
        for (ConsumerRecord<String, String> copy : clients.readAll(copies, "read_committed")) {
            List<String> context = new ArrayList<>(List.of(copy.key() + "=" + copy.value()));
            for (String name : List.of("topic", "partition", "offset", "group", "delivery.count")) {
                String text = new String(copy.headers().lastHeader("__dlq.errors." + name).value(), StandardCharsets.UTF_8);
                context.add(text.equals(topic) ? "the topic" : text.equals(group) ? "the group" : text);
            }
            found.add(context);
        }
        return found;
    }

    private Object callback() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup();
        clients.send(topic, 2);
        List<Object> found = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> found.add(new TreeSet<>(offsets.values().iterator().next()) + " " + error));
            consumer.subscribe(List.of(topic));
            take(consumer, 2);
            Clients.until(() -> {
                consumer.poll(Clients.BRIEFLY);
                return !found.isEmpty();
            });
        }
        return found;
    }
}
