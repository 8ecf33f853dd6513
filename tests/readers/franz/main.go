// Folds a compacted topic with franz-go, and prints each row as a JSON object.
//
// Arguments: brokers, topic, format (json or avro), URL of the registry, and by partition the offset of the last record.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"math/big"
	"os"
	"strconv"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
)

type row = map[string]any

func main() {
	brokers, topic, format, registry := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	last := map[string]int64{}
	check(json.Unmarshal([]byte(os.Args[5]), &last))
	decode := fromJSON
	if format == "avro" {
		decode = avroDecoder(registry)
	}
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
	rows := map[string]row{}
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

// fromJSON keeps the digits of numbers, and the text of the document.
func fromJSON(value []byte) row {
	var fields map[string]json.RawMessage
	check(json.Unmarshal(value, &fields))
	found := row{}
	for name, raw := range fields {
		if name == "doc" && string(raw) != "null" {
			found[name] = string(raw)
			continue
		}
		var field any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		check(decoder.Decode(&field))
		found[name] = field
	}
	return found
}

// avroDecoder reads values with the schema that the registry has under the id in their first bytes.
func avroDecoder(registry string) func([]byte) row {
	client, err := sr.NewClient(sr.URLs(registry))
	check(err)
	var header sr.ConfluentHeader
	schemas := map[int]avro.Schema{}
	return func(value []byte) row {
		id, body, err := header.DecodeID(value)
		check(err)
		if schemas[id] == nil {
			registered, err := client.SchemaByID(context.Background(), id)
			check(err)
			schemas[id], err = avro.Parse(registered.Schema)
			check(err)
		}
		found := row{}
		check(avro.Unmarshal(schemas[id], body, &found))
		for _, field := range schemas[id].(*avro.RecordSchema).Fields() {
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
