# Two commands do everything on a fresh machine: `make demo` and `make test`. Both build their own .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# torch is named exactly: an open range takes a CUDA build of several GB where a CPU build would do.
TORCH := torch==2.13.0

.PHONY: demo test validate bench clean

demo: $(VENV)/.demo
	$(BIN)/comet-sim run demo --check

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

# Real CrypTen beside ours. It names dependencies it does not need here, some of which cannot be had: so not as an extra.
validate: $(VENV)/.crypten
	$(BIN)/comet-sim validate crypten --size 5 --size 64

bench: $(VENV)/.test
	$(BIN)/python benchmarks/kernel.py
	$(BIN)/python benchmarks/ring.py
	$(BIN)/python benchmarks/runs.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[models]'
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[models,test]'
	touch $@

$(VENV)/.crypten: | $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps crypten==0.4.1
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pandas omegaconf pyyaml onnx tensorboard
	touch $@

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
