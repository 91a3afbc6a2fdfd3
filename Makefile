# `make demo` and `make test` work in a fresh clone: they make the environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO ?= $(BIN)/tito demo
WORKERS ?= 2

.PHONY: help install demo test slow mutation lint format types bench clean

help:
	@echo "make demo      train a CNN on real digits, on every backend"
	@echo "make test      all tests but the slow ones"
	@echo "make slow      the slow tests"
	@echo "make mutation  check that planted faults make the tests fail"
	@echo "make lint      ruff, check only"
	@echo "make format    ruff, mend what can be mended"
	@echo "make types     mypy --strict"
	@echo "make bench     side by side with NumPy and PyTorch"
	@echo "make clean     remove the environment and what tools left"

install: $(INSTALLED)

# Bytecode is compiled when a module is first imported: compiling all of torch takes longer.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(DEMO)

test: $(INSTALLED)
	$(BIN)/pytest -n $(WORKERS)

# pytest exits with 5 if no test is marked slow.
slow: $(INSTALLED)
	$(BIN)/pytest -n $(WORKERS) -m slow || [ $$? -eq 5 ]

mutation: $(INSTALLED)
	$(BIN)/python tools/mutation_check.py

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(INSTALLED)
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/tito bench

clean:
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
