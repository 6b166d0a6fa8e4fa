# Needs python3.11 (or python3) and make, and for the tests chromium; everything else is installed into .venv.
#
#   make conformance   the suite on a transport; the last lines say what the verdict is and where the report lies
#   make test          lint, types, the docs and the tests of the harness itself
#   make docs          the docs, into site/; a link to nowhere is an error
#   make conformance TRANSPORT=mymodule:MyTransport PYTEST_ARGS=--rdt-profile=quick
#   make power         how likely the suite catches what is wrong, for reports/power.json
#   make gallery       real reports of all transports that need no GPU, for reports/gallery; GALLERY="tcp inline" for some,
#                      GALLERY=--devices=cuda for those that need one
#   make compat        the suite on several versions of Ray; RAY_VERSIONS="2.57.0 2.60.0" picks them

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
TRANSPORT ?= reference_transports.shared_memory:SharedMemoryTransport
PYTEST_ARGS ?=
POWER_ARGS ?=
GALLERY ?=
RAY_VERSIONS ?=
COMPAT_ARGS ?=

.PHONY: test docs conformance power gallery compat clean

# NIXL's own threads keep a core busy for as long as a process lives, and what others measure would suffer. JAX has
# threads as well, and a process with them cannot be forked without a warning.
test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(MAKE) docs
	$(BIN)/pytest tests --ignore=tests/test_faulty.py --ignore=tests/browser --ignore=tests/nixl_reference \
		--ignore=tests/test_data_types.py -n 3
	$(BIN)/pytest tests/browser -n 2
	$(BIN)/pytest tests/nixl_reference
	$(BIN)/pytest tests/test_data_types.py -n 2
	$(BIN)/pytest tests/test_faulty.py -n 3

# Not --quiet: warnings that are not shown would not be counted either, and mkdocs.yml makes errors of them.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

conformance: .venv/installed
	$(BIN)/pytest --transport=$(TRANSPORT) $(PYTEST_ARGS)

# How likely each transport that is wrong on purpose is caught; hours for all of them from nothing.
power: .venv/installed
	$(BIN)/python -m tests.power $(POWER_ARGS)

# One after the other, as they are measured too: about half an hour on a machine that does nothing else.
gallery: .venv/installed
	$(BIN)/python -m tests.gallery $(GALLERY)

# With environments of its own, in a temporary folder unless COMPAT_ARGS=--folder=… names one; see docs/ray-versions.md.
compat:
	$(PYTHON) -m tests.compat $(if $(RAY_VERSIONS),--versions="$(RAY_VERSIONS)") $(COMPAT_ARGS)

# With the constraints, because a torch of any other version would be a build with CUDA of several gigabytes.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --editable '.[dev,nixl]' --constraint constraints.txt
	touch $@

clean:
	rm -rf .venv site
