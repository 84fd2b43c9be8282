package steps;

import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A producer and a consumer that push their metrics while they work. Arguments: broker, topic, codec. It prints "producer ID" and "consumer
 * ID", the client instance ids that they were given; a line on its input closes both.
 */
public final class TelemetryWorker {
    private TelemetryWorker() {
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[0]);
        String topic = arguments[1];
        try (KafkaProducer<String, String> producer = clients.producer("client.id", "java-producer");
            KafkaConsumer<String, String> consumer = clients.consumer("client.id", "java-consumer", "group.id", "java-group")) {
            consumer.subscribe(List.of(topic));
            System.out.println("producer " + producer.clientInstanceId(Clients.LONG));
            producer.send(new ProducerRecord<>(topic, "k", "v")).get();
            while (consumer.poll(Duration.ofMillis(20)).isEmpty()) {
                // The consumer asks for its subscription while it polls.
            }
            System.out.println("consumer " + consumer.clientInstanceId(Clients.LONG));
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>(topic, "k", "v")).get();
                consumer.poll(Duration.ofMillis(20));
            }
        }
    }
}
