# Needs Python (3.11 or newer), make and a package registry as pip is configured; everything else goes into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= demo.png

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench soak docs clean

help:            ## what there is
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp ## local service, a week of simulated books over HTTP, one chart
	@$(BIN)/python -m marketdata.cli demo --out $(OUT)

test: $(VENV)/test.stamp ## the test suite, docs and notebooks included
	$(BIN)/python -m pytest -q

lint: $(VENV)/lint.stamp ## ruff, mypy, pyright, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/codespell

bench: $(VENV)/bench.stamp ## measured figures
	$(BIN)/python -m tests.bench
	$(BIN)/python -m pytest -q -s -m bench tests

soak: $(VENV)/test.stamp ## long runs
	$(BIN)/python -m pytest -q -s -m soak tests

docs: $(VENV)/test.stamp ## run every example of the documentation and the notebooks
	$(BIN)/python -m pytest -q tests/test_docs.py

clean:           ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp per set of packages: made anew when pyproject.toml changes, so a second run starts at once.
$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "marketdata needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	@touch $@

$(VENV)/demo.stamp: pyproject.toml $(VENV)/venv.stamp
	$(BIN)/python -m pip install -q -e ".[all]"
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(BIN)/python -m pip install -q --group test
	@touch $@

$(VENV)/lint.stamp: $(VENV)/test.stamp
	$(BIN)/python -m pip install -q --group lint
	@touch $@

$(VENV)/bench.stamp: $(VENV)/test.stamp
	$(BIN)/python -m pip install -q --group bench
	@touch $@
