"""A standalone Spark cluster on this machine: a master and workers, each a process, from the jars that pyspark brings.

Executors run with a Python that has what pip installed, and not this project: what they import of it must be shipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark

from cdc.lab.stack.account import CURRENT
from cdc.lab.stack.embedded import HOST, free_port
from cdc.lab.stack.spark import spark_runtime
from tests.support.process_tree import send
from tests.support.quick_java import QUICK
from tests.support.spark_classes import classes
from tests.support.waiting import eventually

_START_TIMEOUT_S: Final = 90
_JAVA_OPTIONS: Final = ("-Xmx256m", "-Dspark.master.rest.enabled=false")
"""Without the submission server: it has a port of its own, always the same, and nobody asks it."""
_RUNNING: Final = re.compile(r"Running task \S+ in stage (\d+)\.\d+ \(TID (\d+)\)")
_ENDED: Final = re.compile(r"(?:Finished|Exception in|Executor killed|Executor interrupted).* \(TID (\d+)\)")


@dataclass
class _Tasks:
    """What an executor's log tells of its tasks, as far as it was read: whoever waits asks fifty times a second.

    Attributes:
        running: stages by task.
        latest: stage of which a task began.
    """

    log: Path
    running: dict[str, int] = field(default_factory=dict)
    latest: int = -1
    _read: int = 0

    def look(self) -> None:
        """Read what is new."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if started := _RUNNING.search(line):
                self.running[started[2]] = stage = int(started[1])
                self.latest = max(self.latest, stage)
            elif ended := _ENDED.search(line):
                self.running.pop(ended[1], None)


@dataclass
class Worker:
    """A worker with one core.

    Attributes:
        folder: its log, and below ``work`` those of its executors.
    """

    folder: Path
    process: subprocess.Popen[bytes]
    _tasks: dict[Path, _Tasks] = field(default_factory=dict)

    def executors(self) -> list[psutil.Process]:
        """Its executors' processes."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
            found = {each.pid: each for each in children if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())}
            # What one of them is about to start has its name for a moment.
            return [each for each in found.values() if each.ppid() not in found]
        except psutil.NoSuchProcess:
            return []

    def is_at(self, first_stage: int) -> bool:
        """Whether an executor runs a task of this stage or a later one, as executors tell in their logs."""
        return any(stage >= first_stage for each in self._newest() for stage in each.running.values())

    def stage(self) -> int:
        """The latest stage of which an executor began a task; -1 before the first."""
        return max((each.latest for each in self._newest()), default=-1)

    def _newest(self) -> list[_Tasks]:
        """Of the newest application: what an older one logged may end in the middle of a task."""
        applications = sorted(self.folder.glob("work/app-*"))
        logs = applications[-1].glob("*/stderr") if applications else ()
        found = [self._tasks.setdefault(log, _Tasks(log)) for log in logs]
        for each in found:
            each.look()
        return found

    def kill(self) -> int:
        """SIGKILL to it and its executors, as a machine failure would; how many executors died."""
        executors = self.executors()
        below = [each for executor in executors for each in executor.children(recursive=True)]
        self.process.kill()
        send([*executors, *below], signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs([*executors, *below], timeout=20)
        return len(executors)

    def stop(self) -> None:
        """SIGTERM: it ends its executors as well."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.kill()


@dataclass
class SparkCluster:
    """Master and workers.

    Attributes:
        folder: a folder for each process.
        workers: those that were not killed.
    """

    folder: Path
    workers: list[Worker] = field(default_factory=list)
    _started: int = 0
    _master: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._port, self._web_port = free_port(), free_port()
        self._home = Path(pyspark.__file__).parent
        self._java = spark_runtime().java_home
        self._options = shlex.split(f"{QUICK} {classes()}")
        self.python = _python_without_project(self.folder)

    @property
    def master(self) -> str:
        """For ``--master``."""
        return f"spark://{HOST}:{self._port}"

    def start(self, workers: int) -> None:
        """Start the master and so many workers, and see them registered."""
        ports = ["--port", str(self._port), "--webui-port", str(self._web_port)]
        self._master = self._run("master", "master.Master", "--host", HOST, *ports)
        for _ in range(workers):
            self.add_worker()
        self.wait_alive()

    def add_worker(self) -> Worker:
        """Start one more; ``wait_alive`` sees it registered."""
        self._started += 1
        name = f"worker-{self._started}"
        folder = self.folder / name
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
        process = self._run(name, "worker.Worker", "--host", HOST, "--webui-port", "0", *size, self.master)
        worker = Worker(folder, process)
        self.workers.append(worker)
        return worker

    def replace_dead(self, workers: int = 2) -> None:
        """Have so many workers again, and see them registered."""
        while len(self.workers) < workers:
            self.add_worker()
        self.wait_alive()

    def stage(self) -> int:
        """The latest stage of which a task began, of the application that runs; -1 before the first."""
        return max(worker.stage() for worker in self.workers)

    def kill_working(self, first_stage: int, timeout_s: float) -> Worker:
        """Wait until an executor runs a task of this stage or a later one, and kill its worker and it meanwhile.

        Returns:
            The dead worker; its logs still say what it was doing.
        """
        message = f"a task of stage {first_stage}"
        killed = eventually(lambda: self._killed_working(first_stage), timeout_s, message, is_momentary=True)
        assert killed is not None
        return killed

    def wait_alive(self) -> None:
        """Wait until the master counts as many workers as there are."""
        eventually(
            lambda: self._alive() == len(self.workers),
            _START_TIMEOUT_S,
            lambda: "\n".join(log.read_text(errors="replace")[-2000:] for log in self.folder.glob("*/log")),
        )

    def close(self) -> None:
        """End what runs."""
        for worker in self.workers:
            worker.stop()
        if self._master is not None:
            self._master.kill()
            self._master.wait()

    def _killed_working(self, first_stage: int) -> Worker | None:
        for worker in self.workers:
            if worker.is_at(first_stage):
                for executor in worker.executors():
                    executor.suspend()
                if worker.is_at(first_stage):
                    self.workers.remove(worker)
                    assert worker.kill() == 1
                    return worker
                for executor in worker.executors():
                    executor.resume()
        return None

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=10) as answer:
                state: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):  # not there yet, or there without the page
            return 0
        return sum(each["state"] == "ALIVE" for each in state["workers"])

    def _run(self, name: str, entry: str, *arguments: str) -> subprocess.Popen[bytes]:
        folder = self.folder / name
        folder.mkdir()
        jars = self._home / "jars"
        # In Spark's own order, which is the archive's.
        class_path = ":".join(map(str, (*jars.glob("slf4j-api-*.jar"), jars / "*")))
        java: list[str | Path] = [self._java / "bin" / "java", *_JAVA_OPTIONS, *self._options, "-cp", class_path]
        command = [*java, f"org.apache.spark.deploy.{entry}", *arguments]
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                CURRENT.command(command, death_signal=signal.SIGKILL),
                cwd=folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self) -> Mapping[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("CDC_", "PYTHON", "SPARK_"))}
        home = {"JAVA_HOME": str(self._java), "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": HOST}
        # Of a distribution Spark's scripts tell it to what starts executors; the wheel has no file that does.
        return {**ours, **home, "SPARK_SCALA_VERSION": "2.13"}


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster whose processes end with the block; ``folder`` gets their logs."""
    cluster = SparkCluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.close()


def _python_without_project(folder: Path) -> Path:
    """For PYSPARK_PYTHON: site-packages by name, so that the paths which an editable install adds stay unknown."""
    python = folder / "python"
    site = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python
