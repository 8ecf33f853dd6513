"""One word has one meaning, and docstrings are sentences, as far as a machine can tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.pages import pages
from tests.architecture.tree import ROOT, modules, parse

PREPOSITIONS: Final = frozenset(
    {
        "About",
        "After",
        "Against",
        "Among",
        "Around",
        "As",
        "At",
        "Before",
        "Behind",
        "Beside",
        "Between",
        "By",
        "During",
    }
    | {
        "During",
        "For",
        "From",
        "In",
        "Into",
        "Like",
        "Of",
        "On",
        "Onto",
        "Over",
        "Per",
        "Since",
        "Than",
        "Through",
        "Till",
        "To",
    }
    | {"Under", "Until", "Upon", "Where", "With", "Within", "Without"}
)
_LAGS: Final = re.compile(
    r"\b(?:be|been|being|is|are|was|were|not|far|further|or|of|says|means|state"
    r"|fall|falls|fell|fallen|falling|lag|lags|stay|stays"
    r"|s|ms|seconds?|minutes?|bytes?|WAL|records?|rows?) behind\b"
    r"|[\"'`]behind[\"'`]|is_behind|behind a proxy|Cdc\w+Behind\b|(?:how_far|fall|bytes|seconds)_behind"
    r"|\bbehind_(?:ms|s)\b",
    re.IGNORECASE,
)
"""Where ``behind`` may stand: for a lag, and as the state of that name."""
_IS_NO: Final = re.compile(r"(?<!here )\b(?:is|are|was|were) no\b(?! longer\b| more\b| \w+er\b)", re.IGNORECASE)


def code() -> list[Path]:
    return modules("cdc", "spark", "migrations")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Those of modules, classes, functions and of names that are assigned, with their lines."""
    for node in ast.walk(parse(path)):
        body = getattr(node, "body", None)
        for before, each in zip([None, *body], body, strict=False) if isinstance(body, list) else ():
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    if before is None or isinstance(before, ast.Assign | ast.AnnAssign):
                        yield each.lineno, text.strip()


def lines() -> Iterator[tuple[str, str]]:
    """Each line of the code, and each paragraph of the pages, with its place."""
    for path in code():
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path}:{number}", line
    for each in pages():
        for paragraph in each.prose.split("\n\n"):
            yield str(each.path), " ".join(paragraph.split())


def is_out_of_place(line: str) -> bool:
    """Whether a ``behind`` in it is not about a lag."""
    good = [match.span() for match in _LAGS.finditer(line)]
    places = [match.start() for match in re.finditer("behind", line, re.IGNORECASE)]
    return any(not any(start <= place < end for start, end in good) for place in places)


def test_docstrings_are_sentences() -> None:
    firsts = [(path, line, *text.split(maxsplit=1)) for path in code() for line, text in docstrings(path)]
    found = [f"{path}:{line}: {word} {rest}" for path, line, word, *rest in firsts if word.strip(",.:") in PREPOSITIONS]
    assert len(firsts) > 4_000
    assert not found, f"begin with what it is or does, not with a preposition: {found}"


def test_behind_means_lag() -> None:
    found = [f"{place}: {line.strip()}" for place, line in lines() if is_out_of_place(line)]
    assert not found, "'behind' is how far a reader lags; order is 'after':\n" + "\n".join(found)


def test_nothing_is_no_thing() -> None:
    found = [f"{place}: {line.strip()}" for place, line in lines() if _IS_NO.search(line)]
    assert not found, "say 'is not a …', or in an error 'invalid …', 'unknown …':\n" + "\n".join(found)


def test_the_rules_find_what_they_are_for() -> None:
    assert is_out_of_place("rows that come behind the cut")
    assert not is_out_of_place("a reader that is behind misses deletes")
    assert _IS_NO.search("'5x' is no duration")
    assert not _IS_NO.search("there is no topic; it is no longer there")
