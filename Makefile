# Both commands start from nothing but Python 3.11 or later: they make .venv themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Another release of torch, or one from another index:
# make test TORCH=torch==2.10.0 TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH ?= torch --constraint constraints.txt
TORCH_INDEX ?=
comma := ,

.PHONY: quickstart papers benchmarks test test-minimum test-scale same lint docs \
	site-test dist release-test clean

# Your own documents: make quickstart ARGS="--data my_letor_file.txt"
quickstart: $(VENV)/.plot
	$(BIN)/python examples/quickstart.py $(ARGS)

# One paper's tables and figures: make papers PAPER=cld ARGS="--table 2 --letor my_folder"
# All five, small: make papers ARGS=--quick
PAPER ?= identifiability user-aware vectorization cld cmip
papers: $(VENV)/.plot
	set -e; for paper in $(subst -,_,$(PAPER)); do \
		$(BIN)/python -m benchmarks papers/$$paper $(ARGS); done

# Time and memory beside the plainest code: make benchmarks ARGS="--only serving --quick"
# The page of the docs: make benchmarks ARGS="--out docs/benchmarks", on idle cores
benchmarks: $(VENV)/.benchmark
	$(BIN)/python -m benchmarks speed $(ARGS)

# A part of it: make test ARGS=tests/metrics
# Each worker has tests that follow each other, which share what they fit, and takes from another
# when it has none left.
test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# The tests at the lower bounds of pyproject.toml (but for torch: see TORCH above), in an
# environment of their own. That old releases warn of newer ones is no fault of this package.
# They have wheels for Python 3.11 and 3.12: make test-minimum PYTHON=python3.11
test-minimum:
	$(MAKE) test VENV=$(VENV)-minimum BOUNDS="--constraint constraints-minimum.txt" \
		ARGS="-W ignore::DeprecationWarning $(ARGS)"

test-scale: $(VENV)/.test $(VENV)/.scale
	$(BIN)/python -m pytest -m scale tests

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# make docs FAST=1 runs no script of the gallery: figures that were never drawn are missing
FAST ?=
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/$(if $(FAST),fast \
		-D plot_gallery=0 -D suppress_warnings=ref.footnote$(comma)image.not_readable,html)

# Does a change keep predictions and estimates? Compares with a revision: make same BASE=HEAD~3
BASE ?= main
same: $(VENV)/.test
	$(BIN)/python .ci/same.py $(BASE)

# The built site: links, other hosts, and five pages in Chromium at two widths
site-test: $(VENV)/.docs $(VENV)/.site
	$(BIN)/python -m pytest -rs tests/site

# The sdist, and the wheel that is built from it; what builds them has its releases pinned
dist: $(VENV)/.lint
	rm -rf dist && PIP_CONSTRAINT=$(CURDIR)/constraints-build.txt $(BIN)/python -m build

# Both as users install them, with each extra and each Python that is here. At the lower bounds:
# TORCH=torch==2.10.0 BOUNDS="--constraint constraints-minimum.txt" .ci/release python3.11
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
release-test: dist
	TORCH="$(TORCH)" TORCH_INDEX="$(TORCH_INDEX)" .ci/release $(PYTHONS)

clean:
	rm -rf $(VENV) $(VENV)-minimum dist docs/_build docs/auto_examples docs/generated

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# One stamp per extra; torch comes first, because the other packages take the release they find.
$(VENV)/.%: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt constraints-minimum.txt
	$(BIN)/python -m pip install --quiet $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/python -m pip install --quiet $(BOUNDS) --editable ".[$*]"
	touch $@
