package steps;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;

/** What an administrator sees of share groups, and does to them. */
final class ShareAdministration {
    private final Clients clients;

    ShareAdministration(Clients clients) {
        this.clients = clients;
    }

    void addTo(Steps steps) {
        steps.add("described", this::described);
        steps.add("offsets", this::offsets);
        steps.add("deleted", this::deleted);
        steps.add("unknown", this::unknown);
    }

    private static String refusal(Callable<?> order) throws Exception {
        try {
            order.call();
            return "done";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static Map<Integer, String> starts(Admin admin, String group) throws Exception {
        Map<Integer, String> found = new TreeMap<>();
        admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group).get().forEach(
            (partition, info) -> found.put(partition.partition(), info == null ? "none" : info.startOffset() + " lag " + info.lag().orElse(-1L)));
        return found;
    }

    private Object described() throws Exception {
        String topic = clients.topic(2);
        String group = clients.shareGroup();
        List<Object> found = new ArrayList<>();
        try (Admin admin = clients.admin(); KafkaShareConsumer<String, String> consumer = clients.sharer(group, "client.id", "it")) {
            consumer.subscribe(List.of(topic));
            Clients.until(() -> {
                consumer.poll(Clients.BRIEFLY);
                return ShareGroups.assigned(admin, group, 2) == 1;
            });
            ShareGroupDescription now = admin.describeShareGroups(List.of(group)).all().get().get(group);
            ShareMemberDescription member = now.members().iterator().next();
            found.add(now.groupState() + " " + member.clientId() + " " + member.host());
            GroupListing listed = admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
                .filter(one -> one.groupId().equals(group)).findFirst().orElseThrow();
            found.add(listed.type().orElseThrow() + " " + listed.protocol() + " " + listed.groupState().orElseThrow());
            found.add(refusal(() -> admin.deleteShareGroups(List.of(group)).all().get()));
            found.add(refusal(() -> admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 0L)).all().get()));
            found.add(refusal(() -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get()));
        }
        try (Admin admin = clients.admin()) {
            ShareGroupDescription now = admin.describeShareGroups(List.of(group)).all().get().get(group);
            found.add(now.groupState() + " " + now.members().size());
        }
        return found;
    }

    private Object offsets() throws Exception {
        String topic = clients.topic(2);
        String group = clients.shareGroup();
        clients.send(topic, 10);
        List<Object> found = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 4L)).all().get();
            found.add(starts(admin, group));
            found.add(read(group, topic, 6));
            Clients.until(() -> starts(admin, group).get(0).endsWith("lag 0"));
            found.add(starts(admin, group).keySet());
            admin.alterShareGroupOffsets(group, Map.of(new TopicPartition(topic, 0), 8L)).all().get();
            found.add(read(group, topic, 2));
            admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
            found.add(starts(admin, group));
            found.add(read(group, topic, 10).size());
        }
        return found;
    }

    private List<String> read(String group, String topic, int count) throws Exception {
        try (KafkaShareConsumer<String, String> consumer = clients.sharer(group)) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> records = ShareGroups.take(consumer, count);
            consumer.commitSync();
            return records.stream().map(ShareGroups::seen).collect(Collectors.toList());
        }
    }

    /** A group that is deleted and named again begins anew. */
    private Object deleted() throws Exception {
        String topic = clients.topic(1);
        String group = clients.shareGroup();
        clients.send(topic, 2);
        List<Object> found = new ArrayList<>(List.of(read(group, topic, 2)));
        try (Admin admin = clients.admin()) {
            admin.deleteShareGroups(List.of(group)).all().get();
            found.add(admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group)));
        }
        found.add(read(group, topic, 2));
        return found;
    }

    private Object unknown() throws Exception {
        String topic = clients.topic(1);
        String group = clients.fresh("missing");
        List<Object> found = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            found.add(refusal(() -> admin.describeShareGroups(List.of(group)).all().get()));
            found.add(refusal(() -> starts(admin, group)));
            found.add(refusal(() -> admin.deleteShareGroups(List.of(group)).all().get()));
            found.add(refusal(() -> admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get()));
            found.add(refusal(() -> admin.alterShareGroupOffsets(group, Map.of(new TopicPartition("missing", 0), 0L)).all().get()));
        }
        return found;
    }
}
