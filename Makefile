# Everything here works on a machine with Python 3.11 or newer and make: `.venv` makes itself.

.DEFAULT_GOAL := help
SHELL := /bin/sh

# Any Python from 3.11 on; `make PYTHON=/path/to/python3.13 ...` chooses another.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 4
# Of `make chaos`: how long things break, the seed that decides what (one of its own if empty), and
# where: server, cluster or sentinel.
SECONDS ?= 60
SEED ?=
# Of `make turns`: how many children.
TURNS ?= 50
TOPOLOGY ?= server
# Of `make matrix`: the oldest redis-py that pyproject.toml allows, and another server's program,
# such as Redis 7.0's (the one that Tocsin brings if empty).
OLDEST ?= 7.0.0
REDIS_SERVER ?=
OLD_VENV := .venv-oldest
OF_SERVERS := tests/tour tests/lua tests/broker tests/scheduler tests/acceptance/test_cluster.py tests/acceptance/test_sentinel.py
# More arguments for pytest: make test ARGS="-k reminder"
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Nothing a person has set up for their own Python leaks in.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.PHONY: help demo test test-mcp test-hosts matrix check chaos turns bench generate format clean

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(STAMP) ## The main job on an embedded server, as a story (ARGS="--speed 60 --runner rq")
	@$(BIN)/tocsin demo $(ARGS)

test: $(STAMP) ## All tests, each worker on a private server of its own
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

test-mcp: $(STAMP) ## The official conformance suite, inspector and SDK against the MCP server (npm)
	$(BIN)/python -m tests.workers.mcp.official

test-hosts: $(STAMP) ## Real hosts, pi and OpenCode, join and are woken 100 times, on a scripted model (npm; WAKES=100)
	$(BIN)/python -m tests.hosts

check: $(STAMP) ## Linter, format, generated code, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python broker/generate_sync.py --check
	$(BIN)/mypy
	$(BIN)/lint-imports

matrix: $(STAMP) $(OLD_VENV)/.installed ## Tests on the oldest redis-py and another server (REDIS_SERVER=path)
	$(OLD_VENV)/bin/python -m pytest -n $(WORKERS) tests/unit/test_connections.py $(OF_SERVERS) $(ARGS)
	$(BIN)/python -m pytest -n $(WORKERS) --on cluster tests/tour tests/broker $(ARGS)
ifneq ($(REDIS_SERVER),)
	$(BIN)/python -m pytest -n $(WORKERS) --server-binary $(REDIS_SERVER) $(OF_SERVERS) $(ARGS)
endif

chaos: $(STAMP) ## A fleet whose parts are killed, frozen and cut off (SECONDS=60 SEED=n TOPOLOGY=cluster)
	$(BIN)/python -m tests.acceptance.chaos --on $(TOPOLOGY) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

turns: $(STAMP) ## Children as turns of RQ: 50 on two workers, and whatever is killed (TURNS=50)
	TURNS=$(TURNS) $(BIN)/python -m pytest tests/acceptance/test_turns.py --durations=10 $(ARGS)

bench: $(STAMP) ## The benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

generate: $(STAMP) ## Write anew what is made from code: the sync client, tables in documents
	$(BIN)/python broker/generate_sync.py
	$(BIN)/python -m tests.architecture.generated

format: $(STAMP) ## Format, sort imports, fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove all that was made here
	rm -rf $(VENV) $(OLD_VENV) .node build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is newer than what it depends on, so a second run starts at once.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Tocsin needs Python 3.11 or newer on the PATH, or make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tocsin needs Python 3.11 or newer; $(PYTHON) is older (make PYTHON=/path/to/python)" >&2; exit 1; }
	@echo "Setting up $(VENV)"
	@$(BIN)/python -c '' 2>/dev/null || { rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

# The same with the oldest redis-py, and the newest of what leans on it.
$(OLD_VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(OLD_VENV)
	@grep -v '^redis==' constraints.txt > $(OLD_VENV)/constraints.txt
	@$(OLD_VENV)/bin/python -m pip install --quiet --constraint $(OLD_VENV)/constraints.txt --editable '.[dev]' 'redis[hiredis]==$(OLDEST)'
	@touch $@
