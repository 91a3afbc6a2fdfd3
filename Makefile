# `make demo` and `make test` work in a fresh clone: they make the environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.installed-demo
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
DEMO ?= $(BIN)/tito demo
WORKERS ?= 2

# A shell that forbids Python to keep bytecode would have every process compile PyTorch again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test slow exhaustive fuzz mutation lint format types bench clean

help:
	@echo "make demo      train a CNN on real digits, on every backend"
	@echo "make test      all tests but the slow ones"
	@echo "make slow      the slow tests"
	@echo "make exhaustive  more models, sizes and types of what the others try a part of: before a release"
	@echo "make fuzz      random programs, compiled against eager: SEED=..., COUNT=10000"
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
	$(PIP) -e '.[dev]'
	touch $@ $(DEMO_INSTALLED)

# The demo needs NumPy, numba and the command line: no PyTorch, no Jupyter.
$(DEMO_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[cli,fast]'
	touch $@

demo: $(DEMO_INSTALLED)
	$(DEMO)

# In processes that share the cores, threads of one product would wait for each other in busy loops.
SHARED := OPENBLAS_NUM_THREADS=1

# Each process has a part of the files in order, so models and kernels are made once; one that has
# nothing left takes half of what another still has to do.
test: $(INSTALLED)
	$(SHARED) $(BIN)/pytest -n $(WORKERS) --dist worksteal

# One process more: many slow tests wait, for a clock or another process.
# pytest exits with 5 if no test is marked slow. What was skipped is listed with the reason.
slow: $(INSTALLED)
	$(SHARED) $(BIN)/pytest -n $$(( $(WORKERS) + 1 )) --dist worksteal -m "slow and not exhaustive" -rs || [ $$? -eq 5 ]

exhaustive: $(INSTALLED)
	$(SHARED) $(BIN)/pytest -n $(WORKERS) --dist worksteal -m exhaustive -rs

# Without SEED another one each time; it is printed.
fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) --count $(or $(COUNT),10000)

mutation: $(INSTALLED)
	$(SHARED) $(BIN)/python tools/mutation_check.py

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
