"""What ``cdc init`` asks at a terminal when a server does not let it in."""

from __future__ import annotations

import pytest
import typer

from cdc.base.errors import SourceRefused
from cdc.ops.setup.answers import Answers
from cdc.ops.setup.seen import ServersSeen

QUESTIONS = ("Password for source", "Source, as a libpq", "Look as another user", "Tables to capture")


def test_a_password_that_nobody_has_leads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under scram, a role that is not there yet is refused as one with a wrong password is."""
    from cdc.cli import init_questions

    replies = {"Password for source": "", "Source, as a libpq": "host=db user=cdc dbname=shop"}
    replies |= {"Look as another user": "user=postgres", "Tables to capture": "public.*"}
    asked: list[str] = []

    def prompt(text: str, **_: object) -> str:
        asked.append(next(each for each in QUESTIONS if text.startswith(each)))
        assert len(asked) < 10, f"asked for ever: {asked}"
        return replies[asked[-1]]

    def look(_config: object, admin: str, *, everything: bool) -> ServersSeen:
        if not admin:
            raise SourceRefused(
                "PostgreSQL refuses cdc@db: password authentication failed for user cdc", remedy="try again"
            )
        assert everything
        raise typer.Abort

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr(init_questions, "look", look)
    with pytest.raises(typer.Abort):
        init_questions.look_and_ask(Answers("shop", "host=db user=cdc dbname=shop", "kafka:9092"), {})
    assert asked == list(QUESTIONS[:3])
