# Needs python3.11 (or python3) and make, and for the tests chromium; everything else is installed into .venv.
#
#   make conformance   the suite on a transport; the last lines say what the verdict is and where the report lies
#   make test          lint, types and the tests of the harness itself
#   make conformance TRANSPORT=mymodule:MyTransport PYTEST_ARGS=--rdt-profile=quick
#   make power         how likely the suite catches what is wrong, for reports/power.json
#   make compat        the suite on several versions of Ray; RAY_VERSIONS="2.57.0 2.60.0" picks them

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
TRANSPORT ?= reference_transports.shared_memory:SharedMemoryTransport
PYTEST_ARGS ?=
POWER_ARGS ?=
RAY_VERSIONS ?=
COMPAT_ARGS ?=

.PHONY: test conformance power compat clean

# NIXL's own threads keep a core busy for as long as a process lives, and what others measure would suffer.
test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pytest tests --ignore=tests/test_faulty.py --ignore=tests/browser --ignore=tests/test_nixl_reference.py -n 2
	$(BIN)/pytest tests/browser -n 2
	$(BIN)/pytest tests/test_nixl_reference.py
	$(BIN)/pytest tests/test_faulty.py -n 3

conformance: .venv/installed
	$(BIN)/pytest --transport=$(TRANSPORT) $(PYTEST_ARGS)

# How likely each transport that is wrong on purpose is caught; hours for all of them from nothing.
power: .venv/installed
	$(BIN)/python -m tests.power $(POWER_ARGS)

# With environments of its own, in a temporary folder unless COMPAT_ARGS=--folder=… names one; see docs/ray-versions.md.
compat:
	$(PYTHON) -m tests.compat $(if $(RAY_VERSIONS),--versions="$(RAY_VERSIONS)") $(COMPAT_ARGS)

# With the constraints, because a torch of any other version would be a build with CUDA of several gigabytes.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --editable '.[dev,nixl]' --constraint constraints.txt
	touch $@

clean:
	rm -rf .venv
