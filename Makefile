# make demo    the cause-effect chains of three programs in fixtures_c
# make test    all tests
# make check   linter, formatter, type checker
# make bench   how fast it is (benchmarks/speed)
# make evaluate      how good the suspects are for the programs in fixtures_c; tables in build/evaluation
# make screenshots   the pages in chromium, looked over and pictured in build/screenshots
# make replays       every gdb script of every program in fixtures_c
# make soak          diagnoses whose processes are killed at random moments, SOAK times (300)
# make clean   remove all that the others leave behind, except the virtual environment
#
# Each sets up what is missing first: the virtual environment, and gdb and a C compiler through apt-get where
# that is allowed. After the first time no network is needed.

PYTHON ?= python3
VENV ?= .venv
INSTALLED := $(VENV)/.installed
RUN := $(VENV)/bin/python -m
SOAK ?= 300
DEMO ?= sample jukebox tidy
PIP_INSTALL := $(RUN) pip install --quiet --disable-pip-version-check

# Else each of the hundreds of sessions that tests start would compile the plugin anew.
unexport PYTHONDONTWRITEBYTECODE

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.ONESHELL:
.DEFAULT_GOAL := test
.PHONY: demo test check bench evaluate screenshots replays soak clean setup tools

# Failing tests (status 1) are what the demo is about; any other status is an error of pytest itself.
demo: setup
	$(RUN) pytest --cause-chain $(DEMO:%=fixtures_c/%) || [ $$? -eq 1 ]

# Each worker begins with a half of its own, since the tests of a module share what they have built.
test: setup
	$(RUN) pytest -n 2 --dist worksteal

check: setup
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

bench: setup
	$(RUN) pytest benchmarks/speed -s

evaluate: setup
	rm -rf build/evaluation
	$(VENV)/bin/python fixtures_c/manifest.py build/evaluation/fixtures
	$(RUN) benchmarks.evaluation build/evaluation/fixtures/manifest.json --output build/evaluation

screenshots: BROWSER := chromium
screenshots: setup
	$(RUN) pytest tests/screenshots
	@echo "Look at build/screenshots/*.png."

replays: setup
	$(RUN) pytest tests/replays -n 2

soak: setup
	SOAK=$(SOAK) $(RUN) pytest tests/faults/random_kills.py -s

clean:
	rm -rf build .causechain .hypothesis .mypy_cache .pytest_cache .ruff_cache dist fixtures_c/*/build
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

setup: $(INSTALLED)

# The build backend is installed too, and not fetched by pip for every build, so that a changed pyproject.toml
# can be installed without network.
$(INSTALLED): pyproject.toml benchmarks/requirements.txt | tools
	@echo "Installing into $(VENV) ..."
	$(RUN) pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP_INSTALL) hatchling editables
	$(PIP_INSTALL) --requirement benchmarks/requirements.txt --no-build-isolation --editable '.[dev]'
	touch $@

# Recommended packages are left out because gdb's are the debug symbols of libc, which make it start slowly.
tools:
	@if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
		echo "Python 3.11 or newer is needed: install it and run 'make PYTHON=python3.11'." >&2
		exit 1
	fi
	missing=
	if ! $(RUN) pip --version >/dev/null 2>&1 && ! $(PYTHON) -c 'import ensurepip' 2>/dev/null; then
		missing="$$missing $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
	fi
	gdb -nx -q -batch -ex 'python pass' >/dev/null 2>&1 || missing="$$missing gdb"
	echo '#include <stdio.h>' | cc -E -x c - >/dev/null 2>&1 || missing="$$missing gcc libc6-dev"
	echo '#include <string>' | c++ -E -x c++ - >/dev/null 2>&1 || missing="$$missing g++"
	[ -z "$(BROWSER)" ] || command -v $(BROWSER) >/dev/null || missing="$$missing $(BROWSER) fonts-dejavu-core"
	[ -n "$$missing" ] || exit 0
	install="apt-get install -y --no-install-recommends$$missing"
	if [ "$$(id -u)" = 0 ]; then
		sudo=
	elif sudo -n true 2>/dev/null; then
		sudo="sudo -n"
	else
		echo "Some packages are missing: run 'sudo $$install', then make again." >&2
		exit 1
	fi
	# The second attempt is for machines whose package lists are missing or out of date.
	install="$$sudo env DEBIAN_FRONTEND=noninteractive $$install -qq"
	$$install || { $$sudo apt-get update -qq && $$install; }
