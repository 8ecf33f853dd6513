"""``python -m cdc``, and the script ``cdc``."""

from cdc import interrupts


def main() -> None:
    """Entry point. Ctrl-C is provided for before anything that takes time is imported."""
    interrupts.end_at_once()
    from cdc.app.cli import main as run

    run()


if __name__ == "__main__":
    main()
