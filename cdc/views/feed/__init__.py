"""Topics → view: a bridge's topics cut by cut, other programs' topics as they come."""
