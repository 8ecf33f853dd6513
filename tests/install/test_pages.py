"""README and docs/: what they show to type is typed, in order, by somebody who has what the pages say to install.

Names of servers stand for the servers of the test. What is not typed here has a reason, and a new command has none.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.lab.stack.binaries import find_binaries
from cdc.lab.stack.embedded import free_port
from tests.architecture.pages import page, pages
from tests.install.environments import Environment
from tests.support.printed_steps import printed_steps
from tests.support.servers import Database, OwnStack
from tests.support.topic_settings import make_topic
from tests.support.waiting import eventually

_TESTED: Final = "tests/integration/{} types it"
NOT_TYPED: Final = {
    "README.md": {
        "make demo": "tests/acceptance/test_demo.py runs what it runs",
        "make test": "you are looking at it",
        "cdc init -c shop.yaml": "asks at a terminal; tests/acceptance/test_init.py answers",
    },
    "docs/benchmarks.md": {"": "minutes of two cores each; tests/benchmarks, in `make test-long`"},
    "docs/learn.md": {"": _TESTED.format("learn/test_lessons.py")},
    "docs/redis.md": {"": _TESTED.format("store/test_redis_store.py")},
    "docs/views.md": {"": _TESTED.format("serve/test_views_page.py")},
    "docs/readers.md": {
        "kafka-console-consumer.sh": "Kafka's own distribution, of which the embedded broker has only the server",
        "curl -X POST": "Kafka Connect is no part of the embedded servers",
        "curl http": "tests/readers asks the registry for a schema",
        "python -m grpc_tools.protoc": "tests/readers runs it",
        "kcat": _TESTED.format("bridge/test_readers_page.py"),
    },
    "docs/topics.md": {"kcat": _TESTED.format("bridge/test_readers_page.py")},
    "docs/reconcile.md": {"cdc reconcile -c shop.yaml --master": "tests/fault/test_spark_cluster.py starts a cluster"},
    "docs/tables.md": {"kill -HUP": "pgrep finds the bridges of others, too; tests/integration/living sends it"},
    "docs/dashboard.md": {"cdc dashboard shop.yaml billing.yaml": "tests/acceptance/test_dashboard.py has several"},
}
"""Page → how the command begins → why it is not typed."""

ENDLESS: Final = (
    "cdc run",
    "cdc sink",
    "cdc dashboard",
    "cdc status -c shop.yaml --watch",
    "--every 1h",
    "--to postgres",
)
"""What runs until it is stopped."""
ANSWERS: Final = {
    "cdc topics lint": {0, 1},
    "cdc topics inspect": {0, 1},
    "cdc topics tombstones": {0, 1},
    "cdc topics plan": {0, 1},
    "cdc history public.orders 17 -c shop.yaml --as-of 0/1925728": {3},  # before this history began
    "cdc backfill -c shop.yaml --pause": {0, 2},  # the backfills before it are done, or not
}
"""Exit codes that are an answer."""
STOPPED: Final = {"snapshot": {2, -signal.SIGTERM}, "status": {-signal.SIGTERM}, "dashboard": {0, -signal.SIGTERM}}
"""Exit codes after SIGTERM, where it is not 0: a job without an answer, and what has nothing to tidy up."""
TYPED: Final = [str(each.path) for each in pages() if each.fences("sh") and "" not in NOT_TYPED.get(str(each.path), {})]


def typed(path: str) -> list[str]:
    """The lines to type, without those that have a reason and without comments."""
    found = []
    for block in page(path).fences("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and not any(line.startswith(each) for each in NOT_TYPED.get(path, {})):
                found.append(re.sub(r"\s+# .*$", "", line))
    return found


def test_reasons_are_of_commands_that_there_are() -> None:
    for path, reasons in NOT_TYPED.items():
        text = "\n".join(page(path).fences("sh"))
        assert [each for each in reasons if not re.search(rf"^{re.escape(each)}", text, re.MULTILINE)] == [], path


class Somebody:
    """At a shell, with what the pages had them install, and servers that are called as on the pages.

    Args:
        environment: with what is installed.
        replica: the replica database, as its owner.
        names: what is on the pages → what is here.
    """

    def __init__(self, environment: Environment, replica: Database, names: dict[str, str]) -> None:
        self.environment, self.replica, self.names = environment, replica, names
        self.folder = environment.folder / "here"
        self.folder.mkdir()
        self.running: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CDC_", "PG"))}
        psql = find_binaries(16)
        path = f"{environment.folder / 'bin'}:{psql.home / psql.programs}:{os.environ['PATH']}"
        self.variables = {**inherited, "PATH": path, "COLUMNS": "200", "VIRTUAL_ENV": str(environment.folder)}
        self.variables["CDC_TOPICS__HISTORY"] = '["public.orders"]'  # as docs/history.md has it in the file

    def here(self, text: str) -> str:
        """The text with the names of this place."""
        for name, own in self.names.items():
            text = text.replace(name, own)
        return text

    def types(self, line: str) -> str:
        """What a line says to its end, which is as the page lets expect; an endless one goes on in the background."""
        if any(each in line for each in ENDLESS):
            self.begins(line)
            return ""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self.here(line)],
            cwd=self.folder, env=self.variables, input="y\ny\n", capture_output=True, text=True, timeout=300,
            start_new_session=True,
        )  # fmt: skip
        said = done.stdout + done.stderr
        codes = next((each for begin, each in ANSWERS.items() if line.startswith(begin)), {0})
        assert done.returncode in codes, f"{line}: {done.returncode}\n{said}"
        assert "Traceback" not in said, f"{line}\n{said}"
        return done.stdout

    def says(self, line: str) -> str:
        """What a line says, however it ends."""
        done = subprocess.run(
            ["bash", "-c", self.here(line)], cwd=self.folder, env=self.variables, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    def alarms(self) -> list[dict[str, str]]:
        """What bridge and sink have logged that is a warning or worse."""
        logs = [log for line, _, log in self.running if line.startswith(("cdc run", "cdc sink"))]
        lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        assert len(lines) > 10
        return [each for each in lines if each["level"] not in ("debug", "info")]

    def installs(self, line: str) -> None:
        """What pip would fetch is where the tests run already."""
        extras = re.search(r"\[(.*)\]", line)
        self.environment.borrow(*(extras[1].split(",") if extras else ()))

    def begins(self, line: str) -> None:
        """Start what does not end, unless it runs already."""
        if any(line == each for each, _, _ in self.running):
            return
        log = self.folder / f"{len(self.running)}.log"
        with log.open("wb") as out:
            words = ["bash", "-c", f"exec env {self.here(line)}"]
            process = subprocess.Popen(words, cwd=self.folder, env=self.variables, stdout=out, stderr=out)
        self.running.append((line, process, log))

    def ends(self, *, but: int = 0) -> None:
        """Stop what runs, and see it end as it should."""
        while len(self.running) > but:
            line, process, log = self.running[-1]  # still there, should it not end
            eventually(lambda log=log: log.stat().st_size, message=line)  # type: ignore[misc]  # mypy does not type a lambda's default
            assert process.poll() is None, f"{line} ended by itself\n{log.read_text()}"
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
            assert code in STOPPED.get(line.split()[1], {0}), f"{line}: {code}\n{log.read_text()}"
            assert "Traceback" not in log.read_text(), log.read_text()
            self.running.pop()

    def kill(self) -> None:
        """End what is left after a failure."""
        for _, process, _ in self.running:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def somebody(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Somebody]:
    servers = OwnStack()
    with ExitStack() as ends:
        ends.callback(servers.close)
        server, kafka = servers.postgres(), servers.kafka()
        Database("postgres", server.dsn()).execute("CREATE DATABASE shop")
        Database("shop", server.dsn("shop")).execute(SHOP)
        for topic in ("users", "dbserver1.inventory.orders"):
            make_topic({"bootstrap.servers": kafka.bootstrap}, topic, 2, "compact")
        environment = Environment(tmp_path_factory.mktemp("pages"))
        environment.borrow()
        environment.pip_install("--no-deps", "--no-index", wheel)
        lake, secrets = tmp_path_factory.mktemp("lake"), tmp_path_factory.mktemp("secrets")
        for each in ("source-password", "replica-password"):
            (secrets / each).write_text("correct horse")
        address = conninfo_to_dict(server.dsn())
        made = Somebody(
            environment,
            Database("copy", server.dsn("copy")),
            {
                "host=db.example": f"host={address['host']} port={address['port']}",
                "host=replica.example dbname=shop": f"host={address['host']} port={address['port']} dbname=copy",
                "kafka:9092": kafka.bootstrap,
                "localhost:9092": kafka.bootstrap,
                "/lake/": f"{lake}/",
                "/var/lib/cdc/": f"{lake}/",
                "/run/secrets/": f"{secrets}/",
                "9187": str(free_port()),
                "9188": str(free_port()),
            },
        )
        ends.callback(made.kill)
        yield made


SHOP: Final = """
CREATE TABLE orders (id integer PRIMARY KEY, status text, created_at timestamptz DEFAULT now());
INSERT INTO orders SELECT i, 'new', now() - i * interval '1 hour' FROM generate_series(1, 500) i;
CREATE TABLE audit_log (id integer PRIMARY KEY);
CREATE SCHEMA "my.schema";
CREATE TABLE "my.schema".orders (id integer PRIMARY KEY, note text);
INSERT INTO "my.schema".orders VALUES (17, 'of a schema with a dot');
CREATE TABLE invoices (id integer PRIMARY KEY);
"""


def test_from_nothing_to_a_replica(somebody: Somebody) -> None:
    """docs/start.md, from the first line to the last: what ``cdc init`` prints is pasted, as the page says."""
    lines = typed("docs/start.md")
    for line in lines:
        if line.startswith("pip install"):
            somebody.installs(line)
        elif line.startswith("cdc init"):
            for step in printed_steps(somebody.types(line)):
                if step.startswith("cdc status"):  # the two before it need some seconds
                    eventually(lambda step=step: "shop is healthy" in somebody.says(step), 60)  # type: ignore[misc]  # mypy does not type a lambda's default
                somebody.types(step)
        else:
            somebody.types(line)
    assert lines[0].startswith("pip install")
    assert [line for line, _, _ in somebody.running] == [each for each in lines if any(end in each for end in ENDLESS)]
    assert somebody.alarms() == []
    (example,) = page("docs/start.md").fences("yaml")
    (somebody.folder / "example.yaml").write_text(somebody.here(example))
    somebody.types("cdc config show -c example.yaml")
    somebody.types("cdc reconcile --help")


@pytest.mark.long
@pytest.mark.parametrize("path", [each for each in TYPED if each != "docs/start.md"])
def test_every_other_page(somebody: Somebody, path: str) -> None:
    """Beside the bridge and the sink that docs/start.md leaves running."""
    if not somebody.running:
        test_from_nothing_to_a_replica(somebody)
    somebody.environment.borrow("view", "spark", "embedded")
    before = len(somebody.running)
    if path == "docs/history.md":  # what the owner of the replica types
        (grant,) = page(path).fences("sql")
        somebody.replica.execute(grant.replace("DATABASE shop", "DATABASE copy"))
    try:
        for line in typed(path):
            somebody.types(line)
    finally:
        somebody.ends(but=before)
