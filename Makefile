# Needs Python (3.11 or newer), make and a package registry as pip is configured; everything else goes into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Python compiles what is imported; compiling everything that is installed would take longer.
PIP    := $(BIN)/python -m pip install -q --no-compile
OUT    ?= demo.png
# pip leaves bytecode out, so it is written when a module is imported first, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE
# Names of the tests that the last run skipped, one a line; conftest.py writes them.
SKIPPED := .pytest_cache/d/skipped/tests

.DEFAULT_GOAL := help
.PHONY: help demo test steady coverage skipped lint audit package bench soak docs engines handover vendors constraints wheels stubs clean

help:            ## what there is
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp ## local service, a week of simulated books over HTTP, one chart
	@$(BIN)/python -m marketdata.cli demo --out $(OUT)

test: $(VENV)/test.stamp ## the test suite, the examples of the docstrings included
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

steady: $(VENV)/test.stamp ## the test suite RUNS times in a row (10), then as often two at a time; stops at a failure
	$(BIN)/python .ci/steady.py $(or $(RUNS),10)

skipped: $(VENV)/engines.stamp ## the tests that the last run skipped, now with Dask, Spark and an S3 server
	@test -f $(SKIPPED) || { echo "Nothing says which tests were skipped: run make test first." >&2; exit 1; }
	@if test -s $(SKIPPED); then $(BIN)/python -m pytest -q -rs @$(SKIPPED); else echo "The last run skipped no test."; fi

coverage: $(VENV)/coverage.stamp ## lines, branches and raises of the package that no test runs
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --cov --cov-report term-missing --cov-report json
	-$(BIN)/python .ci/raises.py coverage.json

lint: $(VENV)/lint.stamp ## stubs, ruff, mypy, pyright, spelling
	$(BIN)/python .ci/stubs.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/codespell

stubs: $(VENV)/lint.stamp ## what follows from the registry of measures: types, names, the page of the reference
	$(BIN)/python .ci/stubs.py

audit: $(VENV)/audit.stamp ## the versions in .ci/constraints.txt among known advisories, where these can be reached
	$(BIN)/python .ci/audit.py

wheels: $(VENV)/venv.stamp ## every dependency has a wheel for the newest Python on Linux, macOS and Windows
	$(BIN)/python .ci/wheels.py

package: $(VENV)/package.stamp ## build wheel and sdist, try them in clean environments, the lowest versions too
	$(BIN)/python -m pytest -q -p no:cacheprovider -m "packaging and not soak" tests/test_packaging.py

bench: $(VENV)/test.stamp $(VENV)/peer.stamp ## tables of speed, compared with other ways (QUICK=1: small sizes)
	$(BIN)/python -m tests.bench $(if $(QUICK),--quick)

soak: $(VENV)/package.stamp ## long runs (QUICK=1: only to see that they start)
	$(BIN)/python -m pytest -q -s -p no:cacheprovider -m soak --hypothesis-profile=soak $(if $(QUICK),--collect-only) tests

docs: $(VENV)/docs.stamp ## run the pages and the notebooks; the documentation site in docs/_build/html, without a warning
	$(BIN)/python -m pytest -q -p no:cacheprovider -n 2 -m docs tests/test_docs.py tests/service/test_start_page.py tests/tidy/test_study_notebook.py
	$(BIN)/python -m sphinx -q -W -n --keep-going -j auto -b html docs docs/_build/html
	$(BIN)/python docs/search.py docs/_build/html/searchindex.js

engines: $(VENV)/engines.stamp ## Dask, Spark and an S3 server, so that make test does not skip their tests

handover: $(VENV)/handover.stamp ## strategies in nautilus_trader and vectorbt, by Python 3.12 or newer
	@test ! -x $(VENV)/handover/bin/python || $(VENV)/handover/bin/python -m pytest -q -rs -p no:cacheprovider tests/tidy/test_backtest.py

vendors: $(VENV)/vendors.stamp ## the vendors' own clients and backtester against our service
	$(VENV)/vendors/bin/python -m pytest -q -rs -p no:cacheprovider tests/service/test_vendors.py tests/stream/test_vendors.py

constraints: $(VENV)/venv.stamp ## choose the newest versions anew, with their hashes
	$(BIN)/python .ci/constraints.py > .ci/constraints.txt

clean:           ## remove what make made
	rm -rf $(VENV) docs/_build docs/_made .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp per set of packages: made anew when pyproject.toml changes, so a second run starts at once.
$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "marketdata needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"
	@touch $@

$(VENV)/demo.stamp: pyproject.toml $(VENV)/venv.stamp
	$(PIP) -e ".[all]"
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(PIP) --group test
	@touch $@

$(VENV)/lint.stamp: $(VENV)/test.stamp
	$(PIP) --group lint
	@touch $@

$(VENV)/coverage.stamp: $(VENV)/test.stamp
	$(PIP) --group coverage
	@touch $@

$(VENV)/audit.stamp: pyproject.toml $(VENV)/venv.stamp
	$(PIP) --group audit
	@touch $@

# The engines of others ask for a newer Python than we do: where there is none, their tests are said not to have run.
$(VENV)/handover.stamp: pyproject.toml $(VENV)/venv.stamp
	@for python in $(PYTHON) python3.14 python3.13 python3.12 "$$HOME"/.pyenv/versions/*/bin/python; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then found=$$python; break; fi; done; \
	if [ -z "$$found" ]; then echo "NOT RUN: nautilus_trader needs Python 3.12 or newer, and there is none here." >&2; exit 0; fi; \
	$$found -m venv $(VENV)/handover && $(VENV)/handover/bin/python -m pip install -q --no-compile --upgrade "pip>=25.1" && \
	$(VENV)/handover/bin/python -m pip install -q --no-compile -e ".[archive,plot]" --group handover
	@touch $@

# The vendor's client, which bench compares with, needs other versions than we do.
$(VENV)/vendors.stamp: pyproject.toml $(VENV)/venv.stamp
	$(BIN)/python -m venv $(VENV)/vendors
	$(VENV)/vendors/bin/python -m pip install -q --no-compile --upgrade "pip>=25.1"
	$(VENV)/vendors/bin/python -m pip install -q --no-compile -e ".[service,stream]" --group vendors
	command -v npm > /dev/null && npm install --silent --prefix $(VENV)/vendors @polyorderbooks/mcp-server@0.2.3 || echo "without npm the MCP server of a vendor is not tried"
	@touch $@

$(VENV)/peer.stamp: pyproject.toml $(VENV)/venv.stamp
	$(PYTHON) -m venv $(VENV)/peer
	$(VENV)/peer/bin/python -m pip install -q --no-compile --upgrade "pip>=25.1"
	$(VENV)/peer/bin/python -m pip install -q --no-compile --group peer
	@touch $@

$(VENV)/package.stamp: $(VENV)/test.stamp
	$(PIP) --group package
	@touch $@

$(VENV)/docs.stamp: $(VENV)/test.stamp
	$(PIP) --group docs
	@touch $@

$(VENV)/engines.stamp: $(VENV)/test.stamp
	$(PIP) --group engines
	@touch $@
