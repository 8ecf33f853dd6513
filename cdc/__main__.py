"""``python -m cdc``, and the script ``cdc``."""

import gc

from cdc.base import interrupts

_ALLOCATIONS_PER_COLLECTION = 50_000
"""What a start imports lives on: to look for garbage among it as often as Python does costs a tenth of the CPU."""


def main() -> None:
    """Entry point. Ctrl-C is provided for before anything that takes time is imported."""
    interrupts.end_at_once()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    from cdc.cli.cli import main as run

    run()


if __name__ == "__main__":
    main()
