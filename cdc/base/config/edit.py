"""Adds an entry to a list of strings in a YAML file, or removes one, and keeps everything else, comments included."""

from __future__ import annotations

from collections.abc import Sequence

import yaml


class CannotEdit(ValueError):
    """The list is not written in a form that can be edited line by line."""


def add_entry(text: str, path: Sequence[str], entry: str, default: Sequence[str] = ()) -> str:
    """Returns the file's text with ``entry`` at the end of the list at ``path``.

    A missing list is created with ``default`` and ``entry``.

    Raises:
        CannotEdit: the section or the list is written in an unusual way.
    """
    *above, name = path
    section = _node(text, above)
    if isinstance(section, yaml.MappingNode) and name not in [key.value for key, _ in section.value]:
        return _with_new_list(text, section, name, [*default, entry])
    items = _list(text, path)
    written = _scalar(entry)
    if items.flow_style:
        end = items.end_mark.index - 1
        return text[:end] + (", " if items.value else "") + written + text[end:]
    last = items.value[-1]
    indent = " " * (last.start_mark.column - 2)
    line_end = text.find("\n", last.end_mark.index)
    line_end = len(text) if line_end < 0 else line_end
    return f"{text[:line_end]}\n{indent}- {written}{text[line_end:]}"


def remove_entry(text: str, path: Sequence[str], entry: str) -> str:
    """Returns the file's text without ``entry`` in the list at ``path``.

    Raises:
        CannotEdit: the entry is missing, it is the only one, or the list is written in an unusual way.
    """
    items = _list(text, path)
    place = next((i for i, item in enumerate(items.value) if item.value == entry), None)
    if place is None or len(items.value) == 1:
        raise CannotEdit(f"{'.'.join(path)} does not list {entry}, or lists nothing else")
    item = items.value[place]
    if not items.flow_style:
        start = text.rfind("\n", 0, item.start_mark.index) + 1
        end = text.find("\n", item.end_mark.index) + 1 or len(text)
        return text[:start] + text[end:]
    if place:
        return text[: items.value[place - 1].end_mark.index] + text[item.end_mark.index :]
    return text[: item.start_mark.index] + text[items.value[1].start_mark.index :]


def _with_new_list(text: str, section: yaml.MappingNode, name: str, entries: Sequence[str]) -> str:
    if section.flow_style or not section.value:
        raise CannotEdit(f"the file has no list {name}, and its section cannot be extended line by line")
    first = section.value[0][0].start_mark
    return (
        f"{text[: first.index]}{name}: [{', '.join(map(_scalar, entries))}]\n{' ' * first.column}{text[first.index :]}"
    )


def _node(text: str, path: Sequence[str]) -> yaml.Node | None:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == key), None)
    return node


def _list(text: str, path: Sequence[str]) -> yaml.SequenceNode:
    node = _node(text, path)
    if not isinstance(node, yaml.SequenceNode) or (not node.flow_style and not _is_plain(text, node)):
        raise CannotEdit(f"the file has no list {'.'.join(path)} with one entry per line or in brackets")
    return node


def _is_plain(text: str, items: yaml.SequenceNode) -> bool:
    """Whether the list has one ``- entry`` per line."""
    lines = [item.start_mark.line for item in items.value]
    dashes = all(text[item.start_mark.index - 2 : item.start_mark.index] == "- " for item in items.value)
    return bool(lines) and dashes and len(set(lines)) == len(lines)


def _scalar(entry: str) -> str:
    """Returns an entry as YAML: names such as ``public.a`` as they are, others in quotes."""
    return yaml.safe_dump([entry], default_flow_style=True, allow_unicode=True, width=10_000).strip()[1:-1]
