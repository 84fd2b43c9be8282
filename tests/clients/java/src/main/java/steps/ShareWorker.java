package steps;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group as a process of its own, which tests kill, or whose broker they kill. Arguments: broker, group, topic, "work" or
 * "hold". It prints "got OFFSET NUMBER" for each record, and, if it works, "done OFFSET" when the broker has confirmed that it was accepted;
 * one that holds never says what became of its records, and polls no more.
 */
public final class ShareWorker {
    private ShareWorker() {
    }

    public static void main(String[] arguments) throws Exception {
        boolean isHolding = arguments[3].equals("hold");
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "group.id", arguments[1], "fetch.max.wait.ms", "50", "max.poll.records", "5",
            "share.acknowledgement.mode", "explicit", "share.acquire.mode", "record_limit", "reconnect.backoff.max.ms", "200");
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.values().forEach(those -> {
            if (error == null) {
                those.forEach(offset -> say("done " + offset));
            }
        }));
        consumer.subscribe(List.of(arguments[2]));
        say("ready");
        while (true) {
            boolean isHeld = false;
            for (ConsumerRecord<String, String> record : consumer.poll(Clients.BRIEFLY)) {
                say("got " + record.offset() + " " + record.deliveryCount().orElse((short) 0));
                isHeld = isHolding;
                if (!isHolding) {
                    consumer.acknowledge(record);
                }
            }
            if (isHeld) {
                Thread.sleep(Long.MAX_VALUE);
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
