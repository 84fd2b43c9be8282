package steps;

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * An instance of a Kafka Streams application in a streams group, as a process of its own, which tests kill. Arguments: broker, application,
 * directory of the state, topology ("words" or "sales"), and settings as name=value. It writes counts into the topic "counts". It prints
 * "state STATE" for each state of the instance, "tasks ACTIVE STANDBY" whenever its tasks change, and "failed WHY"; a line on its input
 * closes it.
 */
public final class StreamsWorker {
    private StreamsWorker() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("group.protocol", "streams");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        Arrays.stream(arguments).skip(4).map(setting -> setting.split("=", 2)).forEach(setting -> settings.put(setting[0], setting[1]));

        StreamsBuilder builder = new StreamsBuilder();
        switch (arguments[3]) {
            case "words" -> countWords(builder);
            case "sales" -> countSales(builder);
            default -> throw new IllegalArgumentException("no such topology: " + arguments[3]);
        }

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            say("failed " + error);
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Thread watcher = new Thread(() -> watch(streams));
        watcher.setDaemon(true);
        watcher.start();
        System.in.read();
        streams.close(Duration.ofSeconds(30));
        say("closed");
    }

    /** Counts the words of the topic "lines", with a repartition topic and a changelog. */
    private static void countWords(StreamsBuilder builder) {
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("totals"))
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
    }

    /** Joins the stream "purchases" with the table "customers", which has the customers' cities, and counts per city and window. */
    private static void countSales(StreamsBuilder builder) {
        KTable<String, String> cities = builder.table("customers", Materialized.as("cities"));
        builder.<String, String>stream("purchases")
            .join(cities, (item, city) -> city)
            .groupBy((customer, city) -> city, Grouped.as("sales"))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofMinutes(5)))
            .count(Materialized.as("windows"))
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
    }

    private static void watch(KafkaStreams streams) {
        String before = "";
        while (true) {
            String now = streams.metadataForLocalThreads().stream()
                .map(thread -> thread.activeTasks().stream().map(task -> task.taskId().toString()).sorted().collect(Collectors.joining(","))
                    + " " + thread.standbyTasks().stream().map(task -> task.taskId().toString()).sorted().collect(Collectors.joining(",")))
                .sorted().collect(Collectors.joining(";"));
            if (!now.equals(before)) {
                say("tasks " + now);
                before = now;
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
