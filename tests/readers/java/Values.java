import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;

/** Values of the topic as rows: JSON with every digit, or Avro with Apicurio's deserializer. */
final class Values {
    static final ObjectMapper JSON = JsonMapper.builder()
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .nodeFactory(JsonNodeFactory.withExactBigDecimals(true))
            .build();
    private static final DateTimeFormatter DATE = DateTimeFormatter.ofPattern("uuuu-MM-dd");
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("HH:mm:ss.SSSSSS");

    static Function<byte[], ObjectNode> reader(String topic, String format, String registry) {
        return format.equals("json") ? Values::json : avro(topic, registry);
    }

    /** The deserializer, told that the id stands in the first bytes as Confluent's do. */
    private static Function<byte[], ObjectNode> avro(String topic, String registry) {
        AvroKafkaDeserializer<GenericRecord> deserializer = new AvroKafkaDeserializer<>();
        deserializer.configure(Map.of(
                "apicurio.registry.url", registry.replaceAll("/apis/.*", "/apis/registry/v2"),
                "apicurio.registry.headers.enabled", "false",
                "apicurio.registry.id-handler", "io.apicurio.registry.serde.Legacy4ByteIdHandler",
                "apicurio.registry.use-id", "contentId"), false);
        return value -> row(deserializer.deserialize(topic, value));
    }

    private static ObjectNode json(byte[] value) {
        try {
            ObjectNode row = (ObjectNode) JSON.readTree(value);
            JsonNode document = row.get("doc");
            return document.isNull() ? row : row.put("doc", document.toString());
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static ObjectNode row(GenericRecord record) {
        ObjectNode row = JSON.createObjectNode();
        record.getSchema().getFields().forEach(field ->
                row.set(field.name(), node(field.schema(), record.get(field.pos()))));
        return row;
    }

    private static JsonNode node(Schema schema, Object value) {
        if (value == null) {
            return JSON.nullNode();
        }
        if (schema.getType() == Schema.Type.UNION) {
            return node(schema.getTypes().stream().filter(each -> each.getType() != Schema.Type.NULL).findFirst().get(), value);
        }
        if (value instanceof List<?> items) {
            var array = JSON.createArrayNode();
            items.forEach(item -> array.add(node(schema.getElementType(), item)));
            return array;
        }
        if (value instanceof Float || value instanceof Double || value instanceof CharSequence) {
            return JSON.valueToTree(value.toString());
        }
        return schema.getLogicalType() == null && !(value instanceof ByteBuffer)
                ? JSON.valueToTree(value) : JSON.valueToTree(text(schema.getLogicalType(), value));
    }

    private static String text(LogicalType type, Object value) {
        if (value instanceof ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            return type instanceof LogicalTypes.Decimal decimal
                    ? new BigDecimal(new BigInteger(bytes), decimal.getScale()).toPlainString()
                    : "\\x" + HexFormat.of().formatHex(bytes);
        }
        if (value instanceof Integer days) {
            return LocalDate.ofEpochDay(days).format(DATE);
        }
        long micros = (Long) value;
        if (type instanceof LogicalTypes.TimeMicros) {
            return LocalTime.ofNanoOfDay(micros * 1000).format(TIME);
        }
        LocalDateTime moment = LocalDateTime.ofEpochSecond(
                Math.floorDiv(micros, 1_000_000L), (int) Math.floorMod(micros, 1_000_000L) * 1000, ZoneOffset.UTC);
        String text = moment.format(DATE) + "T" + moment.format(TIME);
        return type instanceof LogicalTypes.TimestampMicros ? text + "Z" : text;
    }
}
