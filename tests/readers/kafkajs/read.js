// Folds a compacted topic with kafkajs, and prints each row as a JSON object.
//
// Arguments: brokers, topic, format, URL of the registry, and by partition the offset of the last record.
const { Kafka, logLevel } = require('kafkajs')
const { SchemaRegistry } = require('@kafkajs/confluent-schema-registry')
const avro = require('avsc')
const protobuf = require('protobufjs')
const { parse, stringify } = require('lossless-json')

const [brokers, topic, format, registry, lastOffsets] = process.argv.slice(2)

const logical = (read) =>
  class extends avro.types.LogicalType {
    constructor(schema, options) {
      super(schema, options)
      this.scale = schema.scale
    }
    _fromValue(value) {
      return read(value, this.scale)
    }
  }

// Date has milliseconds, and topics have microseconds.
const moment = (micros) => {
  const seconds = micros / 1000000n - (micros % 1000000n < 0n ? 1n : 0n)
  const fraction = String(micros - seconds * 1000000n).padStart(6, '0')
  return new Date(Number(seconds) * 1000).toISOString().replace('.000Z', `.${fraction}`)
}

const decimal = (bytes, scale) => {
  const unscaled = BigInt.asIntN(bytes.length * 8, BigInt(`0x${bytes.toString('hex')}`))
  const digits = String(unscaled < 0n ? -unscaled : unscaled).padStart(scale + 1, '0')
  const whole = digits.slice(0, digits.length - scale)
  return (unscaled < 0n ? '-' : '') + (scale ? `${whole}.${digits.slice(-scale)}` : whole)
}

const logicalTypes = {
  decimal: logical(decimal),
  date: logical((days) => new Date(days * 86400000).toISOString().slice(0, 10)),
}

// A number of JavaScript has 53 bits, which a bigint needs more of, and a timestamp from the year 2255 on.
const longs = {
  'time-micros': (micros) => moment(micros).slice(11),
  'timestamp-micros': (micros) => `${moment(micros)}Z`,
  'local-timestamp-micros': moment,
}

const longType = (read) =>
  avro.types.LongType.__with({
    fromBuffer: (buffer) => read(buffer.readBigInt64LE()),
    toBuffer: () => Buffer.alloc(8),
    fromJSON: String,
    toJSON: String,
    isValid: (value) => typeof value === 'string',
    compare: () => 0,
  })

const typeHook = (schema) =>
  (schema.type || schema) === 'long' ? longType(longs[schema.logicalType] || String) : undefined

const decoder = new SchemaRegistry(
  { host: registry || 'http://127.0.0.1' },
  { AVRO: { logicalTypes, typeHook }, JSON: { strict: false } }, // the schema has a member that only cdc knows
)

// A row in JSON with every digit, its document as text.
const json = (value) => {
  const row = parse(value.toString())
  return { ...row, doc: row.doc === null ? null : stringify(row.doc) }
}

// The registry's client does not know Timestamp, and makes placedAt of placed_at: so without it.
const micros = ({ seconds = 0, nanos = 0 }) => BigInt(seconds) * 1000000n + BigInt(nanos) / 1000n
const messages = {}
const protobufs = async (value) => {
  const id = value.readInt32BE(1)
  if (!messages[id]) {
    const { schema } = await (await fetch(`${registry}/schemas/ids/${id}`)).json()
    const { root, package: name } = protobuf.parse(schema, { keepCase: true })
    root.addJSON(protobuf.common.get('google/protobuf/timestamp.proto').nested)
    messages[id] = root.lookup(name).nestedArray[0]
  }
  const message = messages[id]
  const row = message.toObject(message.decode(value.subarray(6)), { longs: String, bytes: String })
  for (const { name } of message.fieldsArray.filter(({ type }) => type.endsWith('.Timestamp')))
    if (row[name]) row[name] = `${moment(micros(row[name]))}Z`
  return row
}

// What a row holds.
const decode = {
  json: async (value) => json(value),
  'json-schema': async (value) => {
    await decoder.decode(value) // which validates, and rounds numbers
    return json(value.subarray(5))
  },
  avro: (value) => decoder.decode(value),
  protobuf: protobufs,
  debezium: async (value) => parse(value.toString()).after,
  'debezium-schemas': async (value) => parse(value.toString()).payload.after,
  connect: async (value) => parse(value.toString()).payload,
}[format]

const printed = (_name, value) => {
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value)
  if (value && value.type === 'Buffer') return `\\x${Buffer.from(value.data).toString('hex')}`
  return value && value.isLosslessNumber ? value.toString() : value
}

const main = async () => {
  const rows = new Map()
  const last = new Map(Object.entries(JSON.parse(lastOffsets)).map(([partition, offset]) => [Number(partition), offset]))
  const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR })
  const consumer = kafka.consumer({ groupId: `${topic}-kafkajs-${process.pid}` })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((done, failed) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const key = message.key.toString()
        if (message.value === null) rows.delete(key)
        else rows.set(key, await decode(message.value))
        if (Number(message.offset) >= last.get(partition)) last.delete(partition)
        if (!last.size) done()
      },
    })
  })
  await consumer.disconnect()
  for (const row of rows.values()) console.log(JSON.stringify(row, printed))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
