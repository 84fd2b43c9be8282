package steps;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/** Groups under the classic protocol, with each assignor of the client, and under the consumer protocol, with each of the broker. */
final class Groups {
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    private static final int CHANGES = 3;
    private final Clients clients;

    Groups(Clients clients) {
        this.clients = clients;
    }

    void addTo(Steps steps) {
        for (String protocol : List.of("classic", "consumer")) {
            steps.add("resume " + protocol, () -> resume(protocol));
            steps.add("static " + protocol, () -> staticMember(protocol));
        }
        steps.add("commits while members change", this::commitsWhileMembersChange);
        steps.add("pattern", this::pattern);
        for (String name : List.of("Range", "RoundRobin", "Sticky", "CooperativeSticky")) {
            steps.add("share " + name, () -> share("classic", "partition.assignment.strategy", ASSIGNORS + name + "Assignor"));
        }
        for (String name : List.of("uniform", "range")) {
            steps.add("share " + name, () -> share("consumer", "group.remote.assignor", name));
        }
    }

    /** Reads half, commits, leaves; another member goes on from there, and from a place that it is set to. */
    private Object resume(String protocol) throws Exception {
        String topic = clients.topic(1);
        String group = clients.fresh("group");
        clients.send(topic, 20);
        TopicPartition place = new TopicPartition(topic, 0);
        List<Object> seen = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = clients.member(protocol, group, "max.poll.records", "10")) {
            consumer.subscribe(List.of(topic));
            seen.add(Clients.read(consumer, 10).size());
            consumer.commitSync();
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(12, "note")));
            seen.add(consumer.committed(Set.of(place)).get(place).metadata());
        }
        try (KafkaConsumer<String, String> consumer = clients.member(protocol, group)) {
            consumer.subscribe(List.of(topic));
            seen.add(Clients.values(Clients.read(consumer, 8)).get(0));
            consumer.seek(place, 3);
            seen.add(Clients.values(Clients.read(consumer, 17)).get(0));
            consumer.commitAsync();
            consumer.unsubscribe();
        }
        try (KafkaConsumer<String, String> consumer = clients.member(protocol, group)) {
            seen.add(consumer.committed(Set.of(place)).get(place).offset());
        }
        return seen;
    }

    /** Commits without a pause while another member joins and leaves: each change gives the first member a new epoch (KIP-1251). */
    private Object commitsWhileMembersChange() throws Exception {
        String topic = clients.topic(4);
        String group = clients.fresh("group");
        try (KafkaConsumer<String, String> first = clients.member("consumer", group)) {
            first.subscribe(List.of(topic));
            commitUntil(first, 4);
            for (int round = 0; round < CHANGES; round++) {
                try (KafkaConsumer<String, String> second = clients.member("consumer", group)) {
                    second.subscribe(List.of(topic));
                    second.poll(Clients.BRIEFLY);
                    commitUntil(first, 2);
                }
                commitUntil(first, 4);
            }
        }
        return true;
    }

    /** Commits an offset of a partition that the member has, until it has as many as are expected. */
    private static void commitUntil(KafkaConsumer<String, String> consumer, int count) throws Exception {
        Clients.until(() -> {
            consumer.poll(Duration.ZERO);
            for (TopicPartition place : consumer.assignment()) {
                consumer.commitSync(Map.of(place, new OffsetAndMetadata(0)));
            }
            return consumer.assignment().size() == count;
        });
    }

    private Object staticMember(String protocol) throws Exception {
        String topic = clients.topic(2);
        String group = clients.fresh("group");
        List<Object> seen = new ArrayList<>();
        for (int life = 0; life < 2; life++) {
            try (KafkaConsumer<String, String> consumer = clients.member(protocol, group, "group.instance.id", "the-one")) {
                consumer.subscribe(List.of(topic));
                Clients.until(() -> {
                    consumer.poll(Clients.BRIEFLY);
                    return consumer.assignment().size() == 2;
                });
                seen.add(consumer.groupMetadata().groupInstanceId().get() + consumer.assignment().size());
            }
        }
        return seen;
    }

    /** A member that subscribes to a pattern, which the broker matches, and to which it answers with topic ids. */
    private Object pattern() throws Exception {
        String topic = clients.topic(2);
        clients.send(topic, 3);
        try (KafkaConsumer<String, String> consumer = clients.member("consumer", clients.fresh("group"))) {
            consumer.subscribe(new SubscriptionPattern(topic + ".*"));
            List<String> values = Clients.values(Clients.read(consumer, 3));
            return values + " " + consumer.assignment().size();
        }
    }

    /** One member has all, two share, and when one leaves the other has all again. */
    private Object share(String protocol, String... settings) throws Exception {
        String topic = clients.topic(4);
        String group = clients.fresh("group");
        List<Object> seen = new ArrayList<>();
        try (KafkaConsumer<String, String> first = clients.member(protocol, group, settings)) {
            first.subscribe(List.of(topic));
            waitForShares(List.of(first), 4);
            try (KafkaConsumer<String, String> second = clients.member(protocol, group, settings)) {
                second.subscribe(List.of(topic));
                waitForShares(List.of(first, second), 2);
                seen.add(first.assignment().size() + "+" + second.assignment().size());
            }
            waitForShares(List.of(first), 4);
            seen.add(first.assignment().size());
        }
        return seen;
    }

    private static void waitForShares(List<KafkaConsumer<String, String>> members, int share) throws Exception {
        Clients.until(() -> {
            Set<TopicPartition> owned = new HashSet<>();
            boolean isFair = true;
            for (KafkaConsumer<String, String> member : members) {
                member.poll(Clients.BRIEFLY);
                isFair &= member.assignment().size() == share;
                owned.addAll(member.assignment());
            }
            return isFair && owned.size() == 4;
        });
    }
}
