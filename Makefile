# Needs python3 (3.11 or later, with pip, or uv beside it), git and make. Everything else is set up on first use, in .tools and .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
# The stages of the set-up follow each other, and `make check test` means check, then test.
.NOTPARALLEL:

PYTHON ?= python3
UV := .tools/bin/uv
PY := .venv/bin/python

TOOLS_READY := .tools/.ready
VENV_READY := .venv/.created
PINS_READY := .venv/.synced
READY := .venv/.ready
MINISTACK_READY := .servers/ministack/.ready
PGQUEUER_READY := .servers/pgqueuer/.ready

# Half of the time a test waits, for a process or a server: three at once keep two cores busy. ARGS=-n0 runs them one after the other.
AT_ONCE := -n 3 --dist worksteal

export UV_PYTHON_DOWNLOADS := never

# uv does not read pip's configuration. Where pip has been told of another index or certificate, uv is told the same.
pip_setting = { $(PYTHON) -m pip config list 2>/dev/null || true; } | sed -n "s/^[^=]*\.$(1)='\(.*\)'$$/\1/p" | sed -n 1p
define as_pip_does
index="$${UV_DEFAULT_INDEX:-$${UV_INDEX_URL:-$$($(call pip_setting,index-url))}}"; \
cert="$${SSL_CERT_FILE:-$$($(call pip_setting,cert))}"; \
if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$$index"; fi; \
if [ -n "$$cert" ]; then export SSL_CERT_FILE="$$cert"; fi;
endef

.PHONY: help
help: ## Show this help
	@echo "Genlock: one plan, many agents, one authoritative result."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'ARGS="…" is passed on by run, demo, test, nightly, bench, bench-copy and race: make test ARGS="-k claim -x"'

.PHONY: run
run: $(READY) ## Start the service with a sample plan and agents at work, and print its URL
	@.venv/bin/genlock dev $(ARGS)

.PHONY: demo
demo: $(READY) ## Watch a fleet with a crash, a zombie and a takeover, in the terminal
	@.venv/bin/genlock demo $(ARGS)

.PHONY: test
test: $(READY) $(MINISTACK_READY) ## Run the tests
	$(PY) -m pytest -q $(AT_ONCE) $(ARGS)

.PHONY: check
check: $(READY) ## Lint, check the format, the types and the layers
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PY) -m mypy $(wildcard src tests bench examples)
	.venv/bin/lint-imports

.PHONY: fmt
fmt: $(READY) ## Format the code and fix what can be fixed
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

.PHONY: bench
bench: $(READY) ## Measure, and compare with the floors
	$(PY) -m bench $(ARGS)

.PHONY: race
race: $(READY) ## Let eight claimers race for one task, 500 times, by library and by command line
	$(PY) -m bench race $(ARGS)

.PHONY: bench-stores
bench-stores: servers $(PGQUEUER_READY) ## Measure the stores on servers
	$(PY) -m bench.stores $(ARGS)
	$(PY) -m bench.stores_redis
	$(PY) -m bench.coordinators
	$(PY) -m bench.pgqueuer
	$(PY) -m bench.stores_dynamodb

.PHONY: bench-http
bench-http: $(READY) ## Measure the service from outside: ARGS="rates waiting history"
	$(PY) -m bench.http $(ARGS)

.PHONY: bench-copy
bench-copy: $(READY) ## Copy a large store around: ARGS="100000 postgres", how many tasks and through which stores
	$(PY) -m bench copy $(ARGS)

.PHONY: servers
servers: $(READY) $(MINISTACK_READY) ## Make ready the servers that tests start
	@$(PY) -m tests.servers

.PHONY: test-mysql
test-mysql: $(READY) $(MINISTACK_READY) ## Run the tests of the MySQL store on a real MySQL, which it fetches, in place of MariaDB
	@$(PY) -m tests.servers.mysql
	GENLOCK_TEST_WITH_MYSQL=1 $(PY) -m pytest -q -k mysql $(AT_ONCE) $(ARGS)

.PHONY: nightly
nightly: $(READY) $(MINISTACK_READY) ## Run the slow tests too
	$(PY) -m pytest -q -m "slow or not slow" --timeout 3600 $(AT_ONCE) $(ARGS)

.PHONY: setup
setup: $(READY) ## Set up .venv (the others do it by themselves)

.PHONY: lock
lock: $(TOOLS_READY) ## Compile the pins again (UPGRADE=1: to the newest versions)
	@$(as_pip_does) \
	compile="$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url $(if $(UPGRADE),--upgrade)"; \
	export UV_CUSTOM_COMPILE_COMMAND="make lock"; \
	$$compile pyproject.toml --extra dev --output-file requirements/dev.txt; \
	$$compile pyproject.toml --constraints requirements/dev.txt --output-file requirements/run.txt; \
	echo uv | $$compile - --no-annotate --output-file requirements/tools.txt; \
	echo ministack | $$compile - --no-annotate --output-file requirements/servers-ministack.txt; \
	printf 'pgqueuer[asyncpg]\nuvloop\n' | $$compile - --no-annotate --output-file requirements/peers-pgqueuer.txt

.PHONY: clean
clean: ## Remove all that was set up or built
	rm -rf .servers .tools .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up, in stages; each is repeated only when what it was made from has changed.

$(TOOLS_READY): requirements/tools.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Genlock needs Python 3.11 or later; name one with PYTHON=")'
	rm -rf .tools
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		set -x; $(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target .tools --require-hashes -r requirements/tools.txt; \
	elif command -v uv >/dev/null; then \
		set -x; uv pip install --quiet --python "$$(command -v $(PYTHON))" --target .tools --require-hashes -r requirements/tools.txt; \
	else \
		echo "The set-up needs pip or uv, and $(PYTHON) has neither; on Debian and Ubuntu: apt install python3-pip" >&2; exit 1; \
	fi
	@touch $@

$(VENV_READY): $(TOOLS_READY)
	$(UV) venv --quiet --clear --no-project --python "$$(command -v $(PYTHON))" .venv
	@touch $@

$(PINS_READY): requirements/dev.txt $(VENV_READY)
	@echo "$(UV) pip sync requirements/dev.txt"
	@$(as_pip_does) $(UV) pip sync --quiet --compile-bytecode --python $(PY) --require-hashes requirements/dev.txt
	@touch $@

$(READY): pyproject.toml $(PINS_READY)
	$(UV) pip install --quiet --offline --python $(PY) --no-deps --no-build-isolation --reinstall --editable .
	$(PY) -m compileall -q src
	@touch $@

# Servers for tests, each in an environment of its own: what they need must not meet what we need.

$(MINISTACK_READY): requirements/servers-ministack.txt $(TOOLS_READY)
	$(UV) venv --quiet --clear --no-project --python "$$(command -v $(PYTHON))" .servers/ministack
	@echo "$(UV) pip sync requirements/servers-ministack.txt"
	@$(as_pip_does) $(UV) pip sync --quiet --python .servers/ministack/bin/python --require-hashes requirements/servers-ministack.txt
	@touch $@

$(PGQUEUER_READY): requirements/peers-pgqueuer.txt $(TOOLS_READY)
	$(UV) venv --quiet --clear --no-project --python "$$(command -v $(PYTHON))" .servers/pgqueuer
	@echo "$(UV) pip sync requirements/peers-pgqueuer.txt"
	@$(as_pip_does) $(UV) pip sync --quiet --python .servers/pgqueuer/bin/python --require-hashes requirements/peers-pgqueuer.txt
	@touch $@
