"""README and docs/ as the tests look at them: links, anchors, code, and the commands in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.architecture.tree import ROOT, tracked

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SUBSHELL = re.compile(r"\$\(([^()]*)\)")
_ENDS_COMMAND = frozenset({"|", "||", "&", "&&", ";", "(", ")", ">", ">>", "<"})


@dataclass(frozen=True, slots=True)
class Page:
    """A page of documentation.

    Attributes:
        path: below the root.
        text: all of it.
    """

    path: Path
    text: str

    def fences(self, language: str) -> list[str]:
        """The blocks of code in this language; indentation is taken off."""
        found = [(indent, body) for indent, name, body in _FENCE.findall(self.text) if name == language]
        return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]

    @property
    def prose(self) -> str:
        """The page without blocks of code."""
        return _FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """The pieces of code inside of sentences."""
        return _SPAN.findall(self.prose)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Every link to a place of this project: path below the root, and anchor, empty for none."""
        targets = [link for link in _LINK.findall(self.prose) if "://" not in link]
        return [(self._below_root(path), anchor) for path, _, anchor in (link.partition("#") for link in targets)]

    @property
    def anchors(self) -> set[str]:
        """What a link can point to behind ``#``: GitHub's names of the headings."""
        titles = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    def rows(self, first: str) -> list[tuple[str, ...]]:
        """The cells of all rows below a table head that begins with ``first``."""
        found, inside = [], False
        for line in self.text.splitlines():
            cells = tuple(cell.strip() for cell in line.strip().strip("|").split(" | "))
            if not line.startswith("|"):
                inside = False
            elif inside and not line.startswith("|--"):
                found.append(cells)
            elif cells[0].startswith(first):
                inside = True
        return found

    def _below_root(self, path: str) -> str:
        if not path:
            return str(self.path)
        return str((ROOT / self.path.parent / path).resolve().relative_to(ROOT))


@cache
def pages() -> tuple[Page, ...]:
    """README and everything under docs/."""
    wanted = [path.relative_to(ROOT) for path in tracked() if path.suffix == ".md"]
    return tuple(
        Page(path, (ROOT / path).read_text(encoding="utf-8"))
        for path in wanted
        if path == Path("README.md") or path.parts[0] == "docs"
    )


def page(path: str) -> Page:
    """The page at this path below the root."""
    return next(each for each in pages() if each.path == Path(path))


def commands(script: str, program: str = "cdc") -> Iterator[list[str]]:
    """The arguments of every call of a program in lines of shell, wherever it stands in a line."""
    for line in script.replace("\\\n", " ").splitlines():
        for part in (line, *_SUBSHELL.findall(line)):
            lexer = shlex.shlex(part, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words: list[str] = []
            for token in [*lexer, ";"]:
                if token not in _ENDS_COMMAND:
                    words.append(token)
                    continue
                while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
                    words.pop(0)
                if words and Path(words[0]).name == program:
                    yield words[1:]
                words = []
