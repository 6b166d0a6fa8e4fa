# Needs python3.11 (or python3) and make; everything else is installed into .venv.
#
#   make test          lint, types and the tests of the harness itself
#   make conformance   the suites on every reference transport
#   make conformance TRANSPORT=mymodule:MyTransport PYTEST_ARGS=--rdt-profile=quick

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
TRANSPORT ?= inline shared-memory tcp socket-pull
PYTEST_ARGS ?=

.PHONY: test conformance clean

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pytest tests

conformance: .venv/installed
	set -e; for transport in $(TRANSPORT); do $(BIN)/pytest --transport=$$transport $(PYTEST_ARGS); done

# With the constraints, because a torch of any other version would be a build with CUDA of several gigabytes.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev,nixl]' --constraint constraints.txt
	touch $@

clean:
	rm -rf .venv
