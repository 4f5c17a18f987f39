# `make reproduce` regenerates the study, `make test` checks the code; both need Python 3.11 to 3.13 and the registries of PyPI and npm.
# CPU-only Linux users save a download of gigabytes by naming PyTorch's wheel index for CPUs:
#   make reproduce TORCH_INDEX=https://download.pytorch.org/whl/cpu
CORES ?= all
TORCH_INDEX ?=
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
REVEAL := node_modules/.package-lock.json
STAMP := $(VENV)/installed-$(shell cksum < requirements.lock | cut -d ' ' -f 1)
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c '$(FITS)' 2>/dev/null && { echo $$p; break; }; done)
# Python compiles a module when it is first imported; of what is installed, most never is.
PIP := python -m pip install --quiet --disable-pip-version-check --no-compile
export PATH := $(BIN):$(PATH)
export PYTHONPATH := $(CURDIR):$(CURDIR)/workflow

.PHONY: reproduce quick test checks tests bench readme install lock schema clean

reproduce: install  ## regenerate the published study: results/published, reports/published
	snakemake --cores $(CORES)

quick: install  ## a real but small run, minutes: results/quick, reports/quick
	snakemake --cores $(CORES) --configfile config/quick.yaml

test: install  ## formatters, linters, types, tests
	$(MAKE) --jobs 2 tests checks

checks:
	ruff check
	snakefmt --check Snakefile rules
	mypy
	lint-imports

tests:
	pytest -n auto

bench: install  ## time and efficiency of training, decoding and verification on this machine
	python -m glint.bench

readme: install  ## write the numbers and the DAG of README.md from the reference run
	python workflow/scripts/quote_results.py

schema: install  ## write config/schema.json and the table in config/README.md from the config classes
	python workflow/scripts/describe_config.py

install: $(STAMP) $(REVEAL)

$(STAMP): requirements.lock
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 with venv was found; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $$(grep '^torch==' requirements.lock)$(if $(TORCH_INDEX), || \
	  { echo "PyTorch could not be installed from TORCH_INDEX=$(TORCH_INDEX); try again without it"; exit 1; })
	$(PIP) --requirement requirements.lock
	touch $@

$(REVEAL): package-lock.json | $(STAMP)
	npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel error
	touch $@

lock:  ## resolve the direct dependencies anew and write requirements.lock
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet $$(grep '^torch==' requirements.lock)
	$(VENV)-lock/bin/pip install --quiet $$($(PYTHON) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); print(*p["project"]["dependencies"], *p["dependency-groups"]["dev"])')
	{ head -n 1 requirements.lock; $(VENV)-lock/bin/pip freeze | sed 's/^\(torch==[0-9.]*\).*/\1/'; } > requirements.new
	mv requirements.new requirements.lock
	rm -rf $(VENV)-lock

clean:  ## remove the environment and caches; results and reports stay
	rm -rf $(VENV) node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build
