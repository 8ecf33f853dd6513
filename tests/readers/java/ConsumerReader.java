import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Folds a compacted topic with the plain consumer, and prints each row as a JSON object.
 *
 * <p>Arguments: brokers, topic, format, URL of the registry, and by partition the offset of the last
 * record; then, if it is not read_committed, the isolation level.
 */
final class ConsumerReader {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Function<byte[], JsonNode> read = Values.reader(topic, arguments[2], arguments[3]);
        Map<String, Integer> last = Values.JSON.readValue(arguments[4], Map.class);
        Map<String, Object> options = Map.of(
                "bootstrap.servers", arguments[0],
                "isolation.level", arguments.length > 5 ? arguments[5] : "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "group.id", "reader-" + ProcessHandle.current().pid());
        Map<String, JsonNode> rows = new HashMap<>();
        try (var consumer = new KafkaConsumer<>(options, new StringDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(java.util.List.of(topic));
            while (!last.isEmpty()) {
                for (ConsumerRecord<String, byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (record.value() == null) {
                        rows.remove(record.key());
                    } else {
                        rows.put(record.key(), read.apply(record.value()));
                    }
                    last.computeIfPresent(String.valueOf(record.partition()),
                            (partition, offset) -> record.offset() >= offset ? null : offset);
                }
            }
        }
        rows.values().forEach(System.out::println);
    }
}
