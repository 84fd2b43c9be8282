package steps;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;

/** The calls by which consoles with Kafka's Java client (kafbat UI, AKHQ, Kafdrop) read a cluster; docs/consoles.md lists them. */
final class Consoles {
    private final Clients clients;

    Consoles(Clients clients) {
        this.clients = clients;
    }

    void addTo(Steps steps) {
        steps.add("console of others, cluster", this::cluster);
        steps.add("console of others, topics", this::topics);
        steps.add("console of others, groups", this::groups);
    }

    private Object cluster() throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            DescribeClusterOptions options = new DescribeClusterOptions().includeAuthorizedOperations(true);
            int node = admin.describeCluster(options).controller().get().id();
            seen.add(admin.describeCluster(options).authorizedOperations().get() != null);
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(node));
            Config settings = admin.describeConfigs(List.of(broker)).all().get().get(broker);
            seen.add(settings.get("delete.topic.enable").value());
            seen.add(settings.get("inter.broker.protocol.version") == null);
            seen.add(admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"));
            try {
                admin.describeAcls(AclBindingFilter.ANY).values().get();
            } catch (ExecutionException error) {
                seen.add(error.getCause().getClass().getSimpleName());
            }
            seen.add(admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).size());
        }
        return seen;
    }

    private Object topics() throws Exception {
        String name = clients.fresh("console");
        TopicPartition place = new TopicPartition(name, 0);
        List<Object> seen = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            admin.createTopics(List.of(new NewTopic(name, Optional.of(1), Optional.empty()))).all().get();
            clients.send(name, 3);
            seen.add(admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream().anyMatch(it -> it.name().equals(name)));
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
            DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            Config settings = admin.describeConfigs(List.of(topic), options).values().get(topic).get();
            seen.add(settings.entries().stream().allMatch(it -> it.documentation() != null && !it.documentation().isEmpty()));
            seen.add(admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get().offset());
            seen.add(admin.listOffsets(Map.of(place, OffsetSpec.latest())).partitionResult(place).get().offset());
            int leader = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().get(0).leader().id();
            admin.alterPartitionReassignments(Map.of(place, Optional.of(new NewPartitionReassignment(List.of(leader))))).all().get();
            seen.add(admin.listPartitionReassignments().reassignments().get().size());
            admin.deleteTopics(List.of(name)).all().get();
        }
        return seen;
    }

    @SuppressWarnings("removal")
    private Object groups() throws Exception {
        String name = clients.topic(1);
        String group = clients.fresh("console");
        TopicPartition place = new TopicPartition(name, 0);
        clients.send(name, 3);
        List<Object> seen = new ArrayList<>();
        try (Admin admin = clients.admin()) {
            admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(2))).all().get();
            seen.add(admin.listConsumerGroups().all().get().stream().anyMatch(it -> it.groupId().equals(group)));
            seen.add(admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
            var specification = Map.of(group, new ListConsumerGroupOffsetsSpec());
            seen.add(admin.listConsumerGroupOffsets(specification).all().get().get(group).get(place).offset());
            admin.deleteConsumerGroupOffsets(group, java.util.Set.of(place)).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
        }
        return seen;
    }
}
