"""Shows values, keys and classes on the page: differences are marked, and invisible characters get a picture."""

from __future__ import annotations

from cdc.spark.report.html.markup import Markup, element
from cdc.spark.report.model import DifferenceClass, Verdict
from cdc.spark.report.values import Span, differing_spans, picture, pieces
from cdc.spark.report.words import VERDICT, class_meaning, class_word


def pair(one: str | None, other: str | None) -> tuple[Markup, Markup]:
    """Shows two values of one column and marks in each the characters that the other does not have."""
    if one is None or other is None or one == other:
        return value(one), value(other)
    left, right = differing_spans(one, other)
    return value(one, left), value(other, right)


def value(text: str | None, differing: tuple[Span, ...] = ()) -> Markup:
    """Shows one value. NULL and the empty text look different from each other and from any other value."""
    if text is None:
        return element("em", "NULL", cls="null")
    if not text:
        return element("em", "empty text", cls="null")
    parts = []
    for piece in pieces(text, differing):
        if piece.kind == "invisible":
            name = f"U+{ord(piece.text):04X}"
            shown: Markup | str = element("span", picture(piece.text), cls="ctl", title=name)
        elif piece.kind == "left_out":
            shown = element("span", f" \N{HORIZONTAL ELLIPSIS} {piece.text} \N{HORIZONTAL ELLIPSIS} ", cls="cut")
        else:
            # Blanks that differ would be invisible: an open box stands for them.
            shown = piece.text.replace(" ", "\N{OPEN BOX}") if piece.differs else piece.text
        parts.append(element("mark", shown) if piece.differs else element("span", shown))
    return element("bdi", parts, cls="v")


def pill(verdict: Verdict) -> Markup:
    """Shows the verdict as a coloured word with a sign of its own."""
    return element("span", element("i", _SIGN[verdict], aria_hidden="true"), VERDICT[verdict], cls=f"pill {verdict}")


def sign(verdict: Verdict) -> str:
    """Returns a character that tells verdicts apart without colour."""
    return _SIGN[verdict]


def class_tag(kind: DifferenceClass, copy: str) -> Markup:
    """Shows the class of a key as a small label; ``copy`` as for ``class_word``."""
    named = class_word(kind, copy)
    return element("span", element("i", cls=f"dot k-{kind}"), named, cls="tag", title=class_meaning(kind, copy))


_SIGN: dict[Verdict, str] = {"identical": "\N{CHECK MARK}", "different": "\N{NOT EQUAL TO}", "not_verified": "?"}
