// Folds a compacted topic with franz-go, and prints each row as a JSON object.
//
// Arguments: brokers, topic, format, URL of the registry, and by partition the offset of the last record.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"math/big"
	"os"
	"strconv"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

var header sr.ConfluentHeader

func main() {
	brokers, topic, format, registry := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	last := map[string]int64{}
	check(json.Unmarshal([]byte(os.Args[5]), &last))
	decode := decoder(format, registry)
	options := []kgo.Opt{
		kgo.SeedBrokers(brokers),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if os.Getenv("UNCOMMITTED") == "" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows := map[string]any{}
	for len(last) > 0 {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Value == nil {
				delete(rows, string(record.Key))
			} else {
				rows[string(record.Key)] = decode(record.Value)
			}
			if partition := strconv.Itoa(int(record.Partition)); record.Offset >= last[partition] {
				delete(last, partition)
			}
		})
	}
	lines := json.NewEncoder(os.Stdout)
	for _, each := range rows {
		check(lines.Encode(each))
	}
}

// decoder returns what makes a row of a value.
func decoder(format, registry string) func([]byte) any {
	switch format {
	case "avro":
		return avroDecoder(registry)
	case "protobuf":
		return protobufDecoder(registry)
	case "json-schema": // the same JSON behind the schema's id
		return func(value []byte) any {
			_, body, err := header.DecodeID(value)
			check(err)
			return withTextOfDocument(body)
		}
	case "debezium":
		return func(value []byte) any { return member(value, "after") }
	case "debezium-schemas":
		return func(value []byte) any { return member(member(value, "payload"), "after") }
	case "connect":
		return func(value []byte) any { return member(value, "payload") }
	}
	return withTextOfDocument
}

// withTextOfDocument is a row in JSON as it was written, with every digit; its document is a text.
func withTextOfDocument(value []byte) any {
	var fields map[string]json.RawMessage
	check(json.Unmarshal(value, &fields))
	if document := fields["doc"]; string(document) != "null" {
		text, err := json.Marshal(string(document))
		check(err)
		fields["doc"] = text
	}
	return fields
}

// member is a member of an object, as it was written.
func member(value []byte, name string) json.RawMessage {
	var members map[string]json.RawMessage
	check(json.Unmarshal(value, &members))
	return members[name]
}

// schemas asks the registry for each schema once.
func schemas[T any](registry string, parse func(string) T) func([]byte) (T, []byte) {
	client, err := sr.NewClient(sr.URLs(registry))
	check(err)
	parsed := map[int]T{}
	return func(value []byte) (T, []byte) {
		id, body, err := header.DecodeID(value)
		check(err)
		if _, known := parsed[id]; !known {
			registered, err := client.SchemaByID(context.Background(), id)
			check(err)
			parsed[id] = parse(registered.Schema)
		}
		return parsed[id], body
	}
}

// protobufDecoder compiles the schemas that values were written with; with classes of your own, leave that out.
func protobufDecoder(registry string) func([]byte) any {
	written := schemas(registry, func(text string) protoreflect.MessageDescriptor {
		source := &protocompile.SourceResolver{
			Accessor: protocompile.SourceAccessorFromMap(map[string]string{"value.proto": text}),
		}
		compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(source)}
		files, err := compiler.Compile(context.Background(), "value.proto")
		check(err)
		return files[0].Messages().Get(0)
	})
	return func(value []byte) any {
		descriptor, body := written(value)
		_, body, err := header.DecodeIndex(body, 1)
		check(err)
		message := dynamicpb.NewMessage(descriptor)
		check(proto.Unmarshal(body, message))
		text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
		check(err)
		return json.RawMessage(text)
	}
}

// avroDecoder reads values with the schemas that they were written with.
func avroDecoder(registry string) func([]byte) any {
	written := schemas(registry, func(text string) *avro.RecordSchema {
		schema, err := avro.Parse(text)
		check(err)
		return schema.(*avro.RecordSchema)
	})
	return func(value []byte) any {
		schema, body := written(value)
		found := map[string]any{}
		check(avro.Unmarshal(schema, body, &found))
		for _, field := range schema.Fields() {
			found[field.Name()] = printed(field.Type(), found[field.Name()])
		}
		return found
	}
}

// printed is a value of Avro as text: hamba/avro has a type of Go for each logical type.
func printed(schema avro.Schema, value any) any {
	if union, ok := schema.(*avro.UnionSchema); ok {
		if held, ok := value.(map[string]any); ok { // a union in a generic value is a map with the type's name
			for _, each := range held {
				value = each
			}
		}
		_, at := union.Indices()
		schema = union.Types()[at]
	}
	switch held := value.(type) {
	case []byte:
		return `\x` + hex.EncodeToString(held)
	case *big.Rat:
		return held.FloatString(schema.(*avro.PrimitiveSchema).Logical().(*avro.DecimalLogicalSchema).Scale())
	case time.Duration:
		return time.UnixMicro(held.Microseconds()).UTC().Format("15:04:05.999999")
	case time.Time:
		switch logical := schema.(*avro.PrimitiveSchema).Logical().Type(); logical {
		case avro.Date:
			return held.UTC().Format("2006-01-02")
		case avro.TimestampMicros:
			return held.UTC().Format("2006-01-02T15:04:05.999999Z")
		default:
			return held.Format("2006-01-02T15:04:05.999999")
		}
	case float32:
		return strconv.FormatFloat(float64(held), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(held, 'g', -1, 64)
	case []any:
		items := schema.(*avro.ArraySchema).Items()
		for at := range held {
			held[at] = printed(items, held[at])
		}
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(fmt.Errorf("franz-go: %w", err))
	}
}
