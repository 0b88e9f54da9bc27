# Both commands start from nothing but Python 3.11 or later: they make .venv themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test test-scale lint docs wheel clean

# Your own documents: make quickstart ARGS="--data my_letor_file.txt"
quickstart: $(VENV)/.quickstart
	$(BIN)/python examples/quickstart.py $(ARGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2

test-scale: $(VENV)/.test $(VENV)/.scale
	$(BIN)/python -m pytest -m scale tests

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

wheel: $(VENV)/.lint
	rm -rf dist && $(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) dist docs/_build docs/auto_examples docs/generated

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# One stamp an extra; torch comes first, by the constraints, or CUDA comes along.
$(VENV)/.%: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
