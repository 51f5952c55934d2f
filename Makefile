# The one task runner: `make` lists what a contributor can do; CI runs the same commands.
# Needs Python >= 3.11, make and git; everything else is set up privately inside the checkout.

# Extra arguments for the tool behind a command: make quick ARGS="-k fence -x"
ARGS ?=
BIN := .venv/bin

# worksteal: a module's tests stay in one process, which keeps their servers, until the other
# process has nothing left to do.
PYTEST = $(BIN)/pytest -n 2 --dist worksteal
IN_TEST = not slow or core
IN_QUICK = not slow and not server and not process

# Else each of the many processes compiles anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

# `make test` reads top to bottom, also under `make -j`.
.NOTPARALLEL:
.DEFAULT_GOAL := help

say = @printf '==> %s\n'

.PHONY: help
help: ## List these commands
	@printf 'Usage: make COMMAND [ARGS="..."]\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: env
env: ## Set up or repair the private environment in .venv (every command below does this first)
	@scripts/bootstrap

.PHONY: demo
demo: env ## Run the whole product on this machine
	@$(BIN)/perago demo $(ARGS)

.PHONY: test
test: lint format-check types imports suite ## Before a change lands: lint, format, types, imports, tests on real servers

.PHONY: quick
quick: env ## Fast feedback: the tests that need neither a server nor seconds; no lint
	$(say) 'Tests that need neither a server nor seconds (pytest)'
	@$(PYTEST) -m '$(IN_QUICK)' $(ARGS)

.PHONY: suite
suite: servers ## The tests of `make test` alone
	$(say) 'Tests, on real lakeFS, Conductor and Spark (pytest, 2 processes)'
	@$(PYTEST) -m '$(IN_TEST)' $(ARGS)

.PHONY: test-slow
test-slow: servers ## The other tests: kill matrices, a small soak, table formats, Spark clusters; each benchmark once
	$(say) 'Tests that `make test` leaves out (pytest, 2 processes)'
	@$(PYTEST) -m 'not ($(IN_TEST))' $(ARGS)
	$(say) 'Benchmarks, small'
	@$(BIN)/python benchmarks/run.py --quick --no-peer

# Once for a machine, a few minutes. Without a registry in reach only CI has to stop here.
.PHONY: servers
servers: env ## Get lakeFS, Conductor and Spark's jars for the tests that need them
	@$(BIN)/perago stack prepare --quiet || if [ "$$CI" = true ]; then exit 1; else \
		printf '==> %s\n' 'No servers here: the tests that need one will be skipped'; fi

.PHONY: matrix
matrix: servers ## Kill workers and servers at every failpoint; `make test` and `make test-slow` have a part of this each
	$(say) 'Workers and servers killed (pytest, 2 processes)'
	@$(PYTEST) $(ARGS) tests/faults/test_zombie.py \
		tests/integration/test_lakefs_crash_matrix.py \
		tests/integration/test_conductor_killed.py tests/integration/test_worker_deaths.py \
		tests/integration/test_worker_leases.py tests/integration/test_worker_servers.py

.PHONY: lint
lint: env ## Lint
	$(say) 'Lint (ruff check)'
	@$(BIN)/ruff check

.PHONY: format
format: env ## Rewrite files: sort imports, apply safe lint fixes, format
	$(say) 'Format (ruff)'
	@$(BIN)/ruff check --fix --exit-zero --quiet
	@$(BIN)/ruff format

.PHONY: format-check
format-check: env ## Check that files are formatted, change nothing
	$(say) 'Formatting (ruff format --check; `make format` repairs)'
	@$(BIN)/ruff format --check

.PHONY: types
types: env ## Check types
	$(say) 'Types (mypy --strict)'
	@$(BIN)/mypy

.PHONY: imports
imports: env ## Check which package may import which
	$(say) 'Import contracts (import-linter)'
	@$(BIN)/lint-imports --no-logo

.PHONY: bench
bench: env ## Run the benchmarks
	$(say) 'Benchmarks'
	@$(BIN)/python benchmarks/run.py $(ARGS)

.PHONY: soak
soak: servers ## 200 workflows on real servers while workers and servers are killed, some minutes
	$(say) 'Soak'
	@$(BIN)/python scripts/soak.py $(ARGS)

.PHONY: build
build: env ## Build the wheel into dist/, with the pinned build backend
	$(say) 'Wheel (hatchling)'
	@$(BIN)/hatchling build -t wheel

# Universal: one file for every platform and Python. Hashed: nothing else can be installed.
# No index address is ever written: where packages come from is each machine's own setting.
COMPILE = $$uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(ARGS)

.PHONY: lock
lock: ## Pin requirements/*.txt anew after a change in pyproject.toml (ARGS=--upgrade: newest)
	$(say) 'Pin requirements (uv pip compile)'
	@uv=$$(scripts/bootstrap --uv) \
	&& $(COMPILE) pyproject.toml -o requirements/base.txt \
	&& $(COMPILE) pyproject.toml --extra lakefs --extra otel --extra connect --extra pandera --extra lineage --group dev \
		-c requirements/base.txt -o requirements/dev.txt \
	&& $(COMPILE) pyproject.toml --extra lakefs --extra otel --extra spark -c requirements/dev.txt \
		-o requirements/worker.txt \
	&& $(COMPILE) --group bootstrap -o requirements/uv.txt \
	&& $(COMPILE) --group go -o src/perago/stack/go.txt \
	&& $(COMPILE) --group java -o src/perago/toolchain/java.txt \
	&& $(COMPILE) --group maven -o src/perago/stack/maven.txt \
	&& $(COMPILE) benchmarks/lakefs_peer.in -o benchmarks/lakefs_peer.txt
	@! grep -n '://' requirements/*.txt src/perago/*/*.txt benchmarks/*.txt || { echo 'An address got into requirements/.' >&2; exit 1; }

.PHONY: clean
clean: ## Remove everything these commands made, the private environment included
	@rm -rf .venv .tools dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find benchmarks examples scripts src tests -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
