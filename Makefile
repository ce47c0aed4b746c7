# Two commands matter: `make demo` and `make test`. Both set up their own environment in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c requirements/constraints.txt

.PHONY: demo test coverage test-slow browser-tests mlflow-test faults lint types docs bench clean

demo: $(VENV)/.light  ## the whole story on a real classifier, with a picture
	$(BIN)/capri demo

test: $(VENV)/.test lint types  ## formatting, types, doctests and the test suite
	@echo "capri: running the tests (a few minutes on 2 cores) ..."
	$(BIN)/python -m pytest -n auto -q
	$(BIN)/python -m pytest --doctest-glob='*.md' -q docs/*.md README.md CONTRIBUTING.md

coverage: $(VENV)/.test  ## which lines the tests reach; a fifth slower than the tests alone
	$(BIN)/python -m pytest -n auto --cov=capri --cov=capri_paper --cov-report=term:skip-covered -q

test-slow: $(VENV)/.test  ## the tests that take minutes or need the real data
	$(BIN)/python -m pytest -m slow -q

browser-tests: $(VENV)/.browser  ## the report in a real browser; what is missing is installed where that is allowed
	$(BIN)/python -m pytest -q -rs tests/page

mlflow-test: $(VENV)/bin/python  ## the recipe for MLflow, in an environment of its own: it asks for many packages
	$(PYTHON) -m venv $(VENV)/mlflow
	$(VENV)/mlflow/bin/python -m pip --disable-pip-version-check install --quiet -c requirements/constraints.txt \
		-e ".[test]" "mlflow-skinny>=3"
	$(VENV)/mlflow/bin/python -m pytest -q tests/integrations/test_recipes.py -k mlflow

faults: $(VENV)/.test  ## the campaign of faults: damaged files, full disks, kills; ends with a table
	$(BIN)/python -m pytest -m faults -q tests/faults

lint: $(VENV)/.test
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: $(VENV)/.test
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the manual, in docs/_build/html
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

bench: $(VENV)/.bench  ## speed against the alternatives, as ratios in one run
	$(BIN)/python reproduction/benchmarks/posthoc.py --page docs/speed.md
	$(BIN)/python reproduction/benchmarks/scale.py --page docs/speed.md

$(VENV)/bin/python:
	@echo "capri: making the environment .venv"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.light: pyproject.toml reproduction/pyproject.toml requirements/constraints.txt | $(VENV)/bin/python
	@echo "capri: installing the light core (one to two minutes the first time) ..."
	$(PIP) -e ".[report]" -e ./reproduction
	@echo "capri: compiling the searches, once (half a minute) ..."
	@$(BIN)/capri demo --data cifar10-lt --splits 1 --jobs 1 --out $(VENV)/compiled > /dev/null
	@touch $@

$(VENV)/.test: pyproject.toml reproduction/pyproject.toml requirements/constraints.txt | $(VENV)/bin/python
	@echo "capri: installing everything the tests need, torch included (two to four minutes the first time) ..."
	$(PIP) -e ".[test]" -e ./reproduction
	@touch $@

# Chromium from the system (as root also from Debian's packages), and axe-core. What cannot be had is skipped by the tests.
$(VENV)/.browser: $(VENV)/.test requirements/browser.txt
	-$(PIP) -r requirements/browser.txt
	@command -v $${CHROMIUM:-chromium} > /dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && \
		apt-get install -qq -y --no-install-recommends chromium > /dev/null; } || \
		echo "capri: there is no Chromium, so its tests are skipped; on Debian: apt-get install chromium"
	@mkdir -p $(VENV)/axe && cd $(VENV)/axe && npm pack --silent axe-core@4 > /dev/null && tar xzf axe-core-*.tgz || \
		echo "capri: axe-core cannot be fetched (npm), so its test is skipped"
	@touch $@

$(VENV)/.docs: pyproject.toml reproduction/pyproject.toml requirements/constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[test,docs]" -e ./reproduction
	@touch $@

$(VENV)/.bench: $(VENV)/.test requirements/peers.txt
	$(PIP) -r requirements/peers.txt
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache docs/_build docs/gallery docs/api
