import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Reads a compacted topic with Flink SQL's upsert-kafka, folds its changelog, and prints each row as a JSON object.
 *
 * <p>Arguments: statements that make the table "matrix", parted by lines with a semicolon; then a query of it.
 */
final class FlinkReader {
    private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");

    public static void main(String[] arguments) throws Exception {
        Configuration options = new Configuration();
        options.setString("parallelism.default", "1");
        options.setString("table.local-time-zone", "UTC");
        TableEnvironment tables = TableEnvironment.create(
                EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(options).build());
        for (String statement : arguments[0].split("\n;\n")) {
            tables.executeSql(statement);
        }
        TableResult result = tables.executeSql(arguments[1]);
        List<String> names = result.getResolvedSchema().getColumnNames();
        Map<String, Row> rows = new HashMap<>();
        try (CloseableIterator<Row> changes = result.collect()) {
            changes.forEachRemaining(row -> {
                String key = row.getField("id") + "\n" + row.getField("code");
                if (row.getKind() == RowKind.DELETE || row.getKind() == RowKind.UPDATE_BEFORE) {
                    rows.remove(key);
                } else {
                    rows.put(key, row);
                }
            });
        }
        for (Row row : rows.values()) {
            List<String> members = new ArrayList<>();
            for (String name : names) {
                members.add(text(name) + ":" + json(row.getField(name)));
            }
            System.out.println("{" + String.join(",", members) + "}");
        }
    }

    private static String json(Object value) {
        if (value == null || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Object[] items) {
            List<String> texts = new ArrayList<>();
            for (Object item : items) {
                texts.add(json(item));
            }
            return "[" + String.join(",", texts) + "]";
        }
        if (value instanceof byte[] bytes) {
            return text("\\x" + HexFormat.of().formatHex(bytes));
        }
        // Java leaves out seconds that are zero.
        return text(value instanceof LocalDateTime moment ? moment.format(MOMENT) : value.toString());
    }

    private static String text(String value) {
        StringBuilder escaped = new StringBuilder("\"");
        for (char each : value.toCharArray()) {
            escaped.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
        }
        return escaped.append('"').toString();
    }
}
