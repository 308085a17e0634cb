# `make demo` and `make test` work on a fresh clone: own environment, install, run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test tests test-all test-slow mutants lint docs clean

demo: $(VENV)/.installed
	@$(BIN)/tutelage run examples/adult.toml --overwrite

# Side by side: the type checker takes more than a minute of one core.
test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory --jobs 3 lint docs tests

tests: $(VENV)/.installed-dev
	$(BIN)/pytest -m "not rest and not slow" --numprocesses auto --dist worksteal

# What `make test` leaves out, and the reproductions.
test-all: $(VENV)/.installed-dev
	$(BIN)/pytest -m "rest and not slow" --numprocesses auto --dist worksteal
	$(BIN)/pytest reproductions/tests -m "not slow" --numprocesses auto --dist worksteal

test-slow: $(VENV)/.installed-dev
	$(BIN)/pytest tests consortium/tests reproductions/tests -m slow

# Faults planted one after the other, and which tests see them: minutes, or hours where the tests on file do not.
mutants: $(VENV)/.installed-dev
	$(BIN)/python tools/mutants.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/codespell benchmarks consortium docs examples reproductions src tools *.md

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed consortium/pyproject.toml reproductions/pyproject.toml
	@echo "Installing the development tools into $(VENV) ..."
	@$(PIP) --editable ".[dev]" --editable "./consortium[flare]" --editable ./reproductions
	@touch $@

clean:
	rm -rf $(VENV) demo examples/adult.ledger site .pytest_cache .ruff_cache .hypothesis build dist
