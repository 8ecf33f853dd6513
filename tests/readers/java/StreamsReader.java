import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Holds a compacted topic as a GlobalKTable, and prints each row as a JSON object.
 *
 * <p>A global table is running when it holds all that was in the topic at the start.
 *
 * <p>Arguments: brokers, topic, format, URL of the registry.
 */
final class StreamsReader {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Function<byte[], JsonNode> read = Values.reader(topic, arguments[2], arguments[3]);
        Path state = Files.createTempDirectory(Path.of("."), "state");
        Properties options = new Properties();
        options.put(StreamsConfig.APPLICATION_ID_CONFIG, "reader-" + ProcessHandle.current().pid());
        options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        options.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        options.put(StreamsConfig.consumerPrefix(ConsumerConfig.ISOLATION_LEVEL_CONFIG), "read_committed");
        StreamsBuilder builder = new StreamsBuilder();
        builder.globalTable(topic, Consumed.with(Serdes.String(), Serdes.ByteArray()), Materialized.as("rows"));
        CountDownLatch running = new CountDownLatch(1);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), options)) {
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) {
                    running.countDown();
                }
            });
            streams.start();
            running.await();
            var store = streams.store(
                    StoreQueryParameters.fromNameAndType("rows", QueryableStoreTypes.<String, byte[]>keyValueStore()));
            try (var rows = store.all()) {
                rows.forEachRemaining(row -> System.out.println(read.apply(row.value)));
            }
        }
    }
}
