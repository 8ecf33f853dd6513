"""``python -m cdc``."""

from cdc.app.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
