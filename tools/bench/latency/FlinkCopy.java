import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies a topic with Flink, exactly once, a checkpoint each second, until its input ends: ADDRESS SOURCE SINK DIRECTORY. */
public final class FlinkCopy {
    private static final class Read extends AbstractDeserializationSchema<byte[]> {
        @Override
        public byte[] deserialize(byte[] value) {
            return value;
        }
    }

    private static final class Write implements SerializationSchema<byte[]> {
        @Override
        public byte[] serialize(byte[] value) {
            return value;
        }
    }

    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.dir", "file://" + args[3]);
        configuration.setString("state.checkpoints.dir", "file://" + args[3]);
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        flink.setParallelism(2);
        flink.enableCheckpointing(1000);
        KafkaSource<byte[]> source = KafkaSource.<byte[]>builder()
            .setBootstrapServers(args[0]).setTopics(args[1]).setGroupId("latency-flink")
            .setStartingOffsets(OffsetsInitializer.earliest()).setProperty("isolation.level", "read_committed")
            .setValueOnlyDeserializer(new Read()).build();
        Properties producer = new Properties();
        producer.setProperty("transaction.timeout.ms", "60000");
        KafkaSink<byte[]> sink = KafkaSink.<byte[]>builder()
            .setBootstrapServers(args[0]).setKafkaProducerConfig(producer)
            .setRecordSerializer(KafkaRecordSerializationSchema.<byte[]>builder()
                .setTopic(args[2]).setValueSerializationSchema(new Write()).build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE).setTransactionalIdPrefix("latency").build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
        flink.executeAsync("copy");
        while (System.in.read() >= 0) {}
        Runtime.getRuntime().halt(0);
    }
}
