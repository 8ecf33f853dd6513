"""Pure: the topic contract, version 1, as far as everybody who writes or reads topics shares it: names, headers,
partitions, progress, definitions, and the records of requests and answers. How a row is written is ``encode``'s."""
