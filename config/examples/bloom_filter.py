"""How often a Bloom filter is not sure of something new: measured, beside theory.

python config/examples/bloom_filter.py 100000 0.01
"""

from __future__ import annotations

import sys

from cdc.state import bloom_size, measure_bloom


def main(items: str = "100000", rate: str = "0.01", seed: str = "0") -> None:
    size = bloom_size(int(items), float(rate))
    print(f"{items} items at {rate}: {size.bits} bits, {size.hashes} hashes, {size.size_bytes} bytes")
    print(measure_bloom(int(items), float(rate), seed=int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
