# All targets run in .venv, which .ci/setup keeps in the state of requirements.lock.
# Pass options of a command in ARGS: make test ARGS="-k lock", make bench ARGS=--short.
# Tests run in four processes; make test ARGS=-n0 runs them in one.
# Pass another Python in PYTHON: make test PYTHON=python3.12
.DEFAULT_GOAL := help
.PHONY: help setup run live up test lint docs bench lock clean
export PYTHON
# Tests start hundreds of interpreters; without stored bytecode each one compiles all of forewarn.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' Makefile

setup: ## create .venv and install the locked packages (the other targets do this first)
	@sh .ci/setup

run: setup ## simulate a small fleet, backtest, train, score and write the report
	$(BIN)/forewarn demo $(ARGS)

live: setup ## play a simulated month of 2,000 GPUs behind the console; Ctrl-C stops it
	@rm -rf live
	$(BIN)/forewarn demo --live --out live $(ARGS)

up: setup ## start Airflow and MLflow on loopback with a simulated fleet; Ctrl-C stops it
	$(BIN)/forewarn up $(ARGS)

test: setup ## run the tests
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: setup ## check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup ## build the documentation into site/; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict $(ARGS)

bench: setup ## measure speed and memory (ARGS=--short: small; else appended to benchmarks/history.jsonl)
	@$(BIN)/python benchmarks/run_benchmarks.py $(ARGS)

lock: setup ## update requirements.lock from pyproject.toml (ARGS=--upgrade also updates versions)
	$(BIN)/uv pip compile pyproject.toml --extra all --extra dev --universal --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --python-version 3.11 \
		--quiet --output-file requirements.lock $(ARGS)

clean: ## remove .venv, caches, builds and the output of `make run`
	rm -rf .venv .venv-torch demo live up site build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
