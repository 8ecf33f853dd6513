"""One world: a source, brokers, a view, the real programs between them, and everything that may happen to them.

It has two parts. First the workload runs, and faults strike. Then the world heals: no more faults, every program runs,
and within a bounded number of steps the topics and the view must be what the source is, and stay so.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from collections.abc import Generator
from functools import partial
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from cdc.base.config import Config
from cdc.views.store.memory import Contents, MemoryStore
from tests.support.views import facts_of, look
from tests.world.kafka import KafkaCluster
from tests.world.kafka_clients import AdminClient, Consumer, Producer, listen
from tests.world.machine import Machine, Program
from tests.world.oracle import SourceHistory, TopicAudit, Wrong, difference, key_of, rows_at, shown
from tests.world.postgres import WorldServer
from tests.world.programs import NAME, run_bridge, run_view
from tests.world.workload import TABLES, Workload

HEALS_WITHIN: Final = 60_000
"""Steps after which a world that is whole must be consistent again; a run that is well takes a tenth of that."""
