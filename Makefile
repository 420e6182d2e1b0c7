# `make demo` and `make test` need Python 3.11 or newer and make, nothing else: each does its own set-up, once.

SHELL := /bin/sh
.SHELLFLAGS := -euc
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# Settings of the user's shell that would reach into the virtual environment.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONNOUSERSITE PYTHONDONTWRITEBYTECODE VIRTUAL_ENV CONDA_PREFIX
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT PIP_NO_DEPS PIP_NO_BINARY PIP_ONLY_BINARY
unexport SPARK_HOME SPARK_CONF_DIR SPARK_MASTER SPARK_REMOTE SPARK_API_MODE SPARK_CONNECT_MODE_ENABLED
unexport PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS PYSPARK_GATEWAY_PORT PYSPARK_GATEWAY_SECRET
unexport NUMBA_DISABLE_JIT NUMBA_BOUNDSCHECK PYTEST_ADDOPTS
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest
PIP := $(PY) -m pip --quiet --quiet --no-input
SOURCES := $(wildcard src tests tools benchmarks)

.PHONY: help demo test test-all test-core test-kernels test-bounds test-spark test-slow test-slow-spark check lint format types contract import docs dist licences lock bench bench-nonequi papers matrix fuzz clean

help:
	@echo "make demo      a join that answers while its data arrives"
	@echo "make test      every kind of test, a part of the random cases, another one each time; SEED=7 has one again"
	@echo "make test-slow the slow tests; PART=2/4 the second quarter of them, and so on"
	@echo "make test-all  all tests and cases, slow ones included"
	@echo "make papers    claims of the papers that are judged by counts, at a small size: has a verdict changed?"
	@echo "make check     what CI runs: test, lint, types, contract, import, docs, papers, dist"
	@echo "make lint      ruff; 'make format' repairs what it can"
	@echo "make types     mypy, strict"
	@echo "make contract  which module may import which"
	@echo "make import    the core imports without Spark"
	@echo "make docs      the documentation as a site, in site/; broken links are errors"
	@echo "make dist      wheel and source archive in dist/, each installed and tried in an empty environment of every Python"
	@echo "make licences  the licences of all run-time dependencies, in locks/licences.md"
	@echo "make bench     benchmarks against peers"
	@echo "make bench-nonequi  joins without equal keys, against fourteen other systems; writes docs/nonequi.md"
	@echo "make matrix    some tests on Spark with several versions of PySpark"
	@echo "make fuzz      the slow randomised tests, with another seed each time"
	@echo "make lock      resolve the locked versions anew from pyproject.toml"
	@echo "make clean     remove everything that was made"

# Set-up. Versions and hashes are locked, build tools included; a changed lock is installed at the next call.

INSTALL := $(PIP) install --require-hashes --no-build-isolation --use-pep517
MADE := $(VENV)/made.stamp
RUN := $(VENV)/run.stamp
SELF := $(VENV)/self.stamp
DEV := $(VENV)/dev.stamp
DOCS := $(VENV)/docs.stamp

# A virtual environment survives neither a move nor the loss of the Python it was made with.
ifneq ($(shell $(PY) -c '' 2>/dev/null && cat $(MADE) 2>/dev/null),$(CURDIR))
.PHONY: $(MADE)
endif

$(MADE):
	@echo "==> set-up: locked packages into $(VENV); a few minutes, once"
	@python=$$(tools/find-python) && "$$python" -m venv --clear $(VENV)
	@echo "$(CURDIR)" > $@

$(RUN): $(MADE) locks/build.txt locks/run.txt
	@$(INSTALL) --requirement locks/build.txt
	@$(INSTALL) --requirement locks/run.txt
	@touch $@

$(SELF): $(RUN) pyproject.toml src/dovetail/__init__.py
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

$(DEV): $(RUN) locks/dev.txt
	@$(INSTALL) --requirement locks/dev.txt
	@touch $@

$(DOCS): $(RUN) locks/docs.txt
	$(INSTALL) --requirement locks/docs.txt
	touch $@

demo: $(SELF)
	@$(VENV)/bin/dovetail demo

# Tests.

# tools/run_tests.py has the parts. All of them run, whatever fails, and a summary comes last. SEED=7 has the random
# examples of an earlier run again, PART=2/4 the second quarter of the tests.
TESTS := $(PY) -m tools.run_tests $(if $(SEED),--seed $(SEED)) $(if $(PART),--part $(PART))

test: $(DEV) $(SELF)
	@$(TESTS) core kernels spark

test-core test-kernels test-bounds test-spark test-slow-spark: test-%: $(DEV) $(SELF)
	@$(TESTS) $*

test-slow: $(DEV) $(SELF)
	@$(TESTS) slow slow-spark

# Everything: all cases of randomised tests, bounds checks, and what takes minutes.
test-all: export DOVETAIL_TEST_EFFORT := all
test-all: $(DEV) $(SELF)
	@$(TESTS) core kernels bounds spark slow slow-spark
	@$(MAKE) --no-print-directory papers

fuzz: $(DEV) $(SELF)
	@export HYPOTHESIS_PROFILE=fuzz DOVETAIL_FUZZ_CASES="$${DOVETAIL_FUZZ_CASES:-100000}"; \
	echo "==> $$DOVETAIL_FUZZ_CASES random joins"; \
	$(PYTEST) --numprocesses auto -m "not spark" $(if $(SEED),--seed $(SEED))

# Versions of PySpark on demand, each in an environment of its own.
SPARKS ?= 4.0 4.1 4.2 4.3
matrix: $(DEV) $(SELF)
	$(PY) tools/spark_matrix.py $(SPARKS)

bench: $(DEV) $(SELF)
	$(PY) -m benchmarks

# Joins without equal keys, against other systems, in environments of their own: ROWS="100000 1000000" for other sizes.
NONEQUI := .venv-nonequi
ROWS ?= 100000
FIGURES ?= benchmarks/nonequi/results/$(shell date -u +%Y-%m-%d).json

$(NONEQUI)/tables.stamp: locks/nonequi-tables.txt
$(NONEQUI)/polars_bio.stamp: locks/nonequi-polars-bio.txt
$(NONEQUI)/spark.stamp: locks/build.txt locks/nonequi-spark.txt

$(NONEQUI)/%.stamp:
	@echo "==> set-up: locked packages into $(NONEQUI)/$*; a few minutes, once"
	@python=$$(tools/find-python) && "$$python" -m venv --clear $(NONEQUI)/$*
	@for lock in $^; do $(NONEQUI)/$*/bin/python -m pip --quiet --quiet --no-input install --require-hashes --requirement $$lock; done
	@if test $* = spark; then $(NONEQUI)/spark/bin/python -m pip --quiet install --no-build-isolation --no-deps --editable .; fi
	@touch $@

bench-nonequi: $(NONEQUI)/tables.stamp $(NONEQUI)/polars_bio.stamp $(NONEQUI)/spark.stamp
	$(NONEQUI)/tables/bin/python -m benchmarks.nonequi run --rows $(ROWS) --json $(FIGURES)
	$(NONEQUI)/tables/bin/python -m benchmarks.nonequi page $(FIGURES)

# The claims of the papers behind the algorithms, against benchmarks/papers/expected.toml. Those that are judged by CPU
# time are left out, because other loads on a machine disturb them: `python -m benchmarks.papers` has all.
papers: $(DEV) $(SELF)
	@echo "==> claims of the papers"
	$(PY) -m benchmarks.papers --scale ci --counted

# Checks.

check: test lint types contract import docs papers dist

lint: $(DEV) $(SELF)
	@echo "==> lint"
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)

format: $(DEV) $(SELF)
	$(PY) -m ruff check --fix $(SOURCES)
	$(PY) -m ruff format $(SOURCES)

types: $(DEV) $(SELF)
	@echo "==> types"
	$(PY) -m mypy

contract: $(DEV) $(SELF)
	@echo "==> import contract"
	$(VENV)/bin/lint-imports --no-logo

import: $(DEV) $(SELF)
	@echo "==> the core without Spark"
	$(PY) tools/import_without_spark.py

# Without a network: fonts, scripts and pictures are the site's own.
docs: $(DOCS) $(SELF)
	@echo "==> documentation"
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict

# A release.

dist: $(RUN)
	@echo "==> wheel and source archive"
	rm -rf build dist
	$(PY) tools/distributions.py dist $(PYTHONS)

licences: $(SELF)
	$(PY) tools/licences.py locks/licences.md

# One version of each package for every Python and platform: no forks.
COMPILE = $(VENV)/bin/uv pip compile --quiet --universal --fork-strategy fewest --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(LOCKFLAGS)

lock: $(DEV)
	$(COMPILE) pyproject.toml --extra postgres --extra spark --group build --group test --group notebook --group postgres \
		--group lint --group bench --group lock --output-file locks/dev.txt
	$(COMPILE) pyproject.toml --extra spark --constraint locks/dev.txt --output-file locks/run.txt
	$(COMPILE) --group build --constraint locks/dev.txt --output-file locks/build.txt
	$(COMPILE) --group docs --constraint locks/dev.txt --output-file locks/docs.txt
	$(COMPILE) --group nonequi-tables --output-file locks/nonequi-tables.txt
	$(COMPILE) --group nonequi-polars-bio --output-file locks/nonequi-polars-bio.txt
	$(COMPILE) pyproject.toml --extra spark --group nonequi-spark --constraint locks/dev.txt --output-file locks/nonequi-spark.txt

clean:
	rm -rf $(VENV) $(NONEQUI) build dist site src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
