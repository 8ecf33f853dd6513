"""Pure: row changes → keyed records. The topic contract, version 1: names, keys, values, header, progress, schemas."""
