package steps;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** Topics, configurations, groups, offsets and what the broker says of itself. */
final class Administration {
    private final Clients clients;

    Administration(Clients clients) {
        this.clients = clients;
    }

    void addTo(Steps steps) {
        steps.add("topics", this::topics);
        steps.add("topics by id", this::topicsById);
        steps.add("configurations", this::configurations);
        steps.add("records deleted", this::recordsDeleted);
        for (String protocol : List.of("classic", "consumer")) {
            steps.add("groups " + protocol, () -> groups(protocol));
        }
        steps.add("cluster", this::cluster);
        steps.add("quotas", this::quotas);
    }

    private Object topics() throws Exception {
        String name = clients.fresh("topic");
        List<Object> seen = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            admin.createTopics(List.of(new NewTopic(name, 3, (short) 1).configs(Map.of("retention.ms", "1000")))).all().get();
            try {
                admin.createTopics(List.of(new NewTopic(name, 3, (short) 1))).all().get();
            } catch (ExecutionException error) {
                seen.add(error.getCause().getClass().getSimpleName());
            }
            seen.add(admin.listTopics().names().get().contains(name));
            seen.add(admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size());
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5))).all().get();
            Clients.until(() -> admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size() == 5);
            admin.deleteTopics(List.of(name)).all().get();
            Clients.until(() -> !admin.listTopics().names().get().contains(name));
            try {
                admin.describeTopics(List.of(name)).allTopicNames().get();
            } catch (ExecutionException error) {
                seen.add(error.getCause().getClass().getSimpleName());
            }
        }
        return seen;
    }

    /** The client sends an empty name beside each id. */
    private Object topicsById() throws Exception {
        String name = clients.topic(3);
        List<Object> seen = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            Uuid id = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
            TopicDescription described = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
            seen.add(described.name().equals(name));
            seen.add(described.partitions().size());
            try {
                admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds().get();
            } catch (ExecutionException error) {
                seen.add(error.getCause().getClass().getSimpleName());
            }
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            Clients.until(() -> !admin.listTopics().names().get().contains(name));
        }
        return seen;
    }

    private Object configurations() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, clients.topic(1));
        try (Admin admin = clients.admin()) {
            AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.bytes", "5555"), AlterConfigOp.OpType.SET);
            AlterConfigOp append = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND);
            admin.incrementalAlterConfigs(Map.of(topic, List.of(set, append))).all().get();
            Config found = admin.describeConfigs(List.of(topic)).all().get().get(topic);
            String seen = found.get("retention.bytes").value() + " " + found.get("cleanup.policy").value();
            AlterConfigOp delete = new AlterConfigOp(new ConfigEntry("retention.bytes", null), AlterConfigOp.OpType.DELETE);
            admin.incrementalAlterConfigs(Map.of(topic, List.of(delete))).all().get();
            found = admin.describeConfigs(List.of(topic)).all().get().get(topic);
            return seen + " " + found.get("retention.bytes").source();
        }
    }

    private Object recordsDeleted() throws Exception {
        String topic = clients.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        clients.send(topic, 10);
        try (Admin admin = clients.admin()) {
            long low = admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(place).get().lowWatermark();
            List<Object> seen = new ArrayList<>(List.of(low));
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.earliestLocal(), OffsetSpec.forTimestamp(1))) {
                seen.add(admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset());
            }
            long last = admin.listOffsets(Map.of(place, OffsetSpec.maxTimestamp())).partitionResult(place).get().offset();
            seen.add(last >= 4 && last < 10);
            return seen;
        }
    }

    private Object groups(String protocol) throws Exception {
        String topic = clients.topic(1);
        String group = clients.fresh("group");
        TopicPartition place = new TopicPartition(topic, 0);
        clients.send(topic, 5);
        List<Object> seen = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            try (KafkaConsumer<String, String> consumer = clients.member(protocol, group)) {
                consumer.subscribe(List.of(topic));
                Clients.read(consumer, 5);
                consumer.commitSync();
                ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                seen.add(found.type() + " " + found.groupState() + " " + found.members().size());
                seen.add(found.members().iterator().next().assignment().topicPartitions().equals(Set.of(place)));
                seen.add(admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group)));
            }
            seen.add(offset(admin, group, place));
            admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(2))).all().get();
            seen.add(offset(admin, group, place));
            admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
            seen.add(offset(admin, group, place));
            admin.deleteConsumerGroups(List.of(group)).all().get();
            seen.add(admin.listGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group)));
        }
        return seen;
    }

    private static Object offset(Admin admin, String group, TopicPartition place) throws Exception {
        OffsetAndMetadata found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place);
        return found == null ? "none" : found.offset();
    }

    private Object cluster() throws Exception {
        String topic = clients.topic(1);
        clients.send(topic, 5);
        TopicPartition place = new TopicPartition(topic, 0);
        try (Admin admin = clients.admin()) {
            List<Object> seen = new ArrayList<>();
            seen.add(admin.describeCluster().nodes().get().size());
            int node = admin.describeCluster().controller().get().id();
            seen.add(admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().iterator().next()
                .replicaInfos().get(place).size() > 0);
            seen.add(admin.describeProducers(List.of(place)).all().get().get(place).activeProducers().size());
            seen.add(new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures()).keySet());
            return seen;
        }
    }

    private Object quotas() throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "java"));
        try (Admin admin = clients.admin()) {
            ClientQuotaAlteration.Op op = new ClientQuotaAlteration.Op("producer_byte_rate", 1e9);
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(op)))).all().get();
            return admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().get(entity);
        }
    }
}
