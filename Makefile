# The two commands that matter: `make demo` shows it, `make test` proves it. Everything sets itself up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# Tests on a control plane mostly wait for it, so that three workers suit two cores. Each file stays with one worker, and
# files start in their order.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help venv demo test check generated lint types unit bench compare soak integration requirements image clean

help: ## show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | while IFS='|' read -r target text; do printf '  make %-14s%s\n' "$$target" "$$text"; done

$(READY): requirements/dev.txt setup.cfg pyproject.toml
	@echo "Setting up $(VENV): 0.5 GB of pinned packages, once"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(READY)

venv: $(READY) ## the spotweave command, in .venv/bin

demo: $(READY) ## a real control plane, Spotweave on it, a story told with real pods (DEMO_ONCE=1 ends by itself)
	@$(BIN)/spotweave demo

test: $(READY) ## all tests; without a control plane it says so loudly and runs the rest
	@$(PYTEST) $(PARALLEL)

check: lint types ## what CI runs: lint, types, all tests; the control plane is required
	@SPOTWEAVE_REQUIRE_CLUSTER=1 $(PYTEST) $(PARALLEL)

generated: $(READY) ## write the files that are made from tables or from other files (CONTRIBUTING.md)
	@$(BIN)/python -m generators

lint: $(READY) ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY) ## mypy --strict
	@$(BIN)/mypy

unit: $(READY) ## the tests that need no control plane
	@$(PYTEST) -m 'not cluster'

bench: $(READY) ## benchmarks: print tables, write out/bench/*.json
	@$(BIN)/python -m benchmarks

compare: $(READY) ## gangs beside plain pods, Kueue, coscheduling and native ones, built on the first run; an hour
	@$(BIN)/python -m benchmarks.compare

soak: $(READY) ## proofs too long for every change: rotations, replicas, 100,000 reviews, laws with 20 times the examples, times
	@SPOTWEAVE_REQUIRE_CLUSTER=1 SPOTWEAVE_SOAK=1 $(PYTEST) -m 'soak or timed' tests --timeout=0
	@SPOTWEAVE_SOAK=1 $(PYTEST) tests/webhook/test_fuzz.py --timeout=0
	@SPOTWEAVE_SOAK=1 $(PYTEST) -m 'hypothesis and not cluster and not soak' tests --ignore=tests/webhook/test_fuzz.py --timeout=0

integration: $(READY) ## beside the real Karpenter and descheduler, built on the first run (SPOTWEAVE_REST_SECONDS=300: longer)
	@SPOTWEAVE_REQUIRE_CLUSTER=1 SPOTWEAVE_INTEGRATION=1 $(PYTEST) -m integration tests/integration --timeout=0

requirements: $(READY) ## pin the dependencies of setup.cfg anew, with hashes
	@$(BIN)/uv pip compile -q -U setup.cfg --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/run.txt
	@$(BIN)/uv pip compile -q -U setup.cfg --extra dev --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -c requirements/run.txt -o requirements/dev.txt

image: ## build the image with buildah
	buildah bud --tag spotweave:0.1.0 .

clean: ## remove the virtual environment and what tools left (the programs' cache: spotweave cluster clean)
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
