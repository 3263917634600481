# make demo, make test and make docs each do all of their own set-up: Python 3.11 or newer, make and pip are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One BLAS thread: equal bits for equal input, and no quarrel over cores between tests that run side by side.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: install demo test soak check bench bench-compare docs docs-serve clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Dagora needs Python 3.11 or newer; call: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $(STAMP)

demo: install
	$(BIN)/dagora demo --out demo-output

test: install
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# Tests marked soak, with more seeds, kills and inputs than in make test (tests/effort.py); at most 20 minutes.
soak: export DAGORA_SOAK := 1
soak: install
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m soak

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python -m benchmarks all

# What changed in the tables: make bench-compare OLD=v0.1.0 (NEW: the results as they are now).
OLD ?= HEAD
NEW ?= benchmarks/results
bench-compare: install
	$(BIN)/python -m benchmarks.compare $(OLD) $(NEW)

docs: export NO_MKDOCS_2_WARNING := 1
docs: install
	$(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html"

docs-serve: export NO_MKDOCS_2_WARNING := 1
docs-serve: install
	$(BIN)/python -m mkdocs serve

clean:
	rm -rf $(VENV) demo-output site
