"""One JVM for the Spark jobs of many commands: each job is still a process of its own, but its JVM is warm.

A job finds the JVM by the two environment variables that pyspark reads. It makes a Spark context there and stops it at
its end, so sessions and settings are its own; only what the JVM has compiled stays. Memory and jars are those of the
JVM's start. One job can be there at a time, and a killed one goes on in the JVM until the next comes: tests that kill,
or that are about how a job starts and ends its JVM, do not use it.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from cdc.lab.stack.spark import SUBMIT_OPTIONS, spark_runtime
from tests.support.quick_java import QUICK
from tests.support.spark_classes import classes

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"
_MEMORY: Final = "2g"
_STOP_TIMEOUT_S: Final = 30


class SharedJvm:
    """Starts when the first job asks for it, and again when it is gone; ends with this process at the latest."""

    def __init__(self) -> None:
        self._gateway: Any = None

    def environment(self) -> dict[str, str]:
        """This process's environment, for a command whose job is to run there."""
        if self._gateway is not None and self._gateway.proc.poll() is not None:
            self.close()
        if self._gateway is None:
            self._start()
        self._end_what_was_left()
        parameters = self._gateway.java_parameters
        return {**os.environ, _PORT: str(parameters.port), _SECRET: parameters.auth_token}

    def close(self) -> None:
        """End it; what comes later starts another."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()
            gateway.proc.stdin.close()  # which ends it
            gateway.proc.wait(_STOP_TIMEOUT_S)

    def _start(self) -> None:
        runtime = spark_runtime()
        conf = SparkConf(loadDefaults=False)
        conf.set("spark.jars", ",".join(map(str, runtime.jars)))
        conf.set("spark.driver.memory", _MEMORY)
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("JAVA_HOME", str(runtime.java_home))
            patched.setenv(SUBMIT_OPTIONS, f"{QUICK} {classes()}")
            patched.setenv("SPARK_LOCAL_IP", "127.0.0.1")
            self._gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]  # it has no types

    def _end_what_was_left(self) -> None:
        """The context of a job that was killed, which the JVM would refuse another beside."""
        companion = getattr(self._gateway.jvm.org.apache.spark, "SparkContext$")
        active = getattr(companion, "MODULE$").getActive()
        if active.isDefined():
            active.get().stop()


SHARED: Final = SharedJvm()
"""This test process's."""
