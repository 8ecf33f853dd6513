import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import io.apicurio.registry.resolver.ParsedSchema;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import io.apicurio.registry.utils.protobuf.schema.ProtobufSchema;
import java.io.IOException;
import java.io.UncheckedIOException;
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

import static java.nio.charset.StandardCharsets.UTF_8;

/** Values of the topic as rows: JSON with every digit, and the others with Apicurio's deserializers. */
final class Values {
    static final ObjectMapper JSON = JsonMapper.builder()
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .nodeFactory(JsonNodeFactory.withExactBigDecimals(true))
            .build();
    private static final DateTimeFormatter DATE = DateTimeFormatter.ofPattern("uuuu-MM-dd");
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("HH:mm:ss.SSSSSS");

    static Function<byte[], JsonNode> reader(String topic, String format, String registry) {
        return switch (format) {
            case "json" -> value -> withTextOfDocument(tree(value));
            case "debezium" -> value -> tree(value).at("/after");
            case "debezium-schemas" -> value -> tree(value).at("/payload/after");
            case "connect" -> value -> tree(value).at("/payload");
            case "json-schema" -> {
                var deserializer = new JsonSchemaKafkaDeserializer<JsonNode>();
                deserializer.setObjectMapper(JSON);
                deserializer.configure(options(registry), false);
                yield value -> withTextOfDocument(deserializer.deserialize(topic, value));
            }
            case "protobuf" -> {
                var deserializer = new FirstMessage();
                deserializer.configure(options(registry), false);
                yield value -> tree(printed(deserializer.deserialize(topic, value)));
            }
            default -> {
                var deserializer = new AvroKafkaDeserializer<GenericRecord>();
                deserializer.configure(options(registry), false);
                yield value -> row(deserializer.deserialize(topic, value));
            }
        };
    }

    /** They tell Apicurio's deserializers that the id stands in the first bytes as Confluent's do. */
    private static Map<String, Object> options(String registry) {
        return Map.of(
                "apicurio.registry.url", registry.replaceAll("/apis/.*", "/apis/registry/v2"),
                "apicurio.registry.headers.enabled", "false",
                "apicurio.registry.id-handler", "io.apicurio.registry.serde.Legacy4ByteIdHandler",
                "apicurio.registry.use-id", "contentId");
    }

    /** Apicurio's deserializer expects the message's name, where Confluent's format has a zero for the first message. */
    private static final class FirstMessage extends ProtobufKafkaDeserializer<DynamicMessage> {
        @Override
        protected DynamicMessage readData(ParsedSchema<ProtobufSchema> schema, ByteBuffer value, int start, int length) {
            try {
                return DynamicMessage.parseFrom(
                        schema.getParsedSchema().getFileDescriptor().getMessageTypes().get(0),
                        CodedInputStream.newInstance(value.array(), start + 1, length - 1));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    private static byte[] printed(DynamicMessage message) {
        try {
            return JsonFormat.printer().includingDefaultValueFields().print(message).getBytes(UTF_8);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode tree(byte[] value) {
        try {
            return JSON.readTree(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode withTextOfDocument(JsonNode row) {
        JsonNode document = row.get("doc");
        return document.isNull() ? row : ((ObjectNode) row).put("doc", document.toString());
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
