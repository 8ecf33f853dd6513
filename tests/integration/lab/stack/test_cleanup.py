"""However the owner of the servers ends, nothing of theirs is left.

Another process may sweep at any moment, so these tests wait for what is gone and never count who removed it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import open_stack
from cdc.lab.stack import running as records
from tests.support.process_tree import family, status
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[4]


def start_owner(*servers: str, prefix: tuple[str, ...] = ()) -> tuple[subprocess.Popen[str], list[dict[str, str]]]:
    owner = subprocess.Popen(
        [*prefix, sys.executable, "-m", "tests.integration.lab.stack.owner", *servers],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    line = owner.stdout.readline()
    assert line, f"the owner ended with {owner.wait()}"
    return owner, json.loads(line)


def finish(owner: subprocess.Popen[str]) -> int:
    with owner:
        pass
    return owner.returncode


def abandon(entry: records.Running) -> None:
    """Let an owner that ends at once record it as its own."""
    text = (
        "import json, sys; from cdc.lab.stack.running import ServerRecord; record = ServerRecord('PostgreSQL');"
        "record.directory.rmdir(); record.update(**json.loads(sys.argv[1]))"
    )
    known = {"directory": entry.directory, "pid": entry.pid}
    subprocess.run([sys.executable, "-c", text, json.dumps(known)], cwd=ROOT, check=True)


def gone(pid: int) -> bool:
    return status(pid) in {psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the servers end when the next stack is started")
def test_a_killed_owner_leaves_no_server_and_the_next_start_removes_its_data():
    owner, started = start_owner("postgres", "kafka", "redis")
    families = [member.pid for server in started for member in family(int(server["pid"]))]
    owner.send_signal(signal.SIGKILL)
    finish(owner)
    eventually(lambda: all(map(gone, families)), message="all servers of the killed owner are gone")
    records.sweep()
    eventually(lambda: not any(Path(server["directory"]).exists() for server in started), message="the data are gone")


@pytest.mark.parametrize("by", [signal.SIGINT, None], ids=["ctrl-c", "ordinary end"])
def test_an_owner_that_ends_orderly_removes_everything_itself(by):
    owner, [server] = start_owner("postgres")
    if by is not None:
        owner.send_signal(by)
    finish(owner)
    assert gone(int(server["pid"]))
    assert not Path(server["directory"]).exists()
    assert server["directory"] not in {entry.directory for entry in records.running()}


@pytest.mark.pg(matrix=False)
def test_a_sweep_spares_servers_whose_owner_lives(own_stack):
    server = own_stack.postgres()
    assert str(server.directory) not in {entry.directory for entry in records.sweep()}
    assert server.pid


@pytest.mark.pg(matrix=False)
def test_a_sweep_stops_a_server_that_outlived_its_owner(own_stack):
    """As on systems without a parent-death signal."""
    server = own_stack.postgres()
    abandon(records.Running("PostgreSQL", directory=str(server.directory), pid=server.pid))
    records.sweep()
    eventually(lambda: server.pid == 0 and not server.directory.exists(), message="the server and its data are gone")


def test_a_process_that_only_got_the_same_id_is_spared():
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with other:
        entry = records.Running("PostgreSQL 16", directory="/nowhere/cdc-stack-x", pid=other.pid)
        assert not entry.is_alive()
        abandon(entry)
        records.sweep()
        assert other.poll() is None


def test_one_server_is_not_left_behind_when_the_other_cannot_be_had(own_cache):
    with pytest.raises(StackError, match="the given PostgreSQL does not answer"):
        open_stack(postgres_url="postgresql://127.0.0.1:1/none", backend="embedded", for_tests=True)
    assert records.running() == []


def user_namespace(uid: int) -> tuple[str, ...]:
    prefix = ("unshare", "--user", f"--map-user={uid}", f"--map-group={uid}")
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    return prefix


@pytest.mark.parametrize("uid", [1, 54321], ids=["with a name", "without a name"])
def test_an_ordinary_user_can_run_both_servers(uid):
    if uid == 1:
        account, servers = "the current account", ["postgres", "kafka"]
    else:
        account, servers = "a user namespace", ["postgres"]
    owner, started = start_owner(*servers, prefix=user_namespace(uid))
    assert started[0]["account"] == account
    owner.send_signal(signal.SIGKILL)
    finish(owner)
    eventually(lambda: all(gone(int(server["pid"])) for server in started), message="the servers are gone")
    records.sweep()
    eventually(lambda: not any(Path(server["directory"]).exists() for server in started), message="the data are gone")
