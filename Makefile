# Empirical roofline suite. Every verb can be run by hand; `make` alone lists them.
MINUTES ?= 3
DEVICE  ?=
PYTHON  ?= python3
VENV    ?= .venv
RESULTS ?= results
RUN     ?=
ARGS    ?=
CUDA    ?=
WHEELHOUSE  ?= wheelhouse
FOR_PYTHON  ?=
FOR_MACHINE ?=

PY      := "$(if $(strip $(VENV)),$(strip $(VENV))/bin/python,$(PYTHON))"
NEED     = @"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 6))" 2>/dev/null || \
	{ echo "set-up: $(PYTHON) is no Python 3 that starts here: name one of 3.10 to 3.13 with PYTHON=..." >&2; exit 1; }
SETUP    = @"$(PYTHON)" -I bench/environment.py --venv "$(strip $(VENV))" --goal "$@" --cuda "$(strip $(CUDA))" \
	--measuring "$(strip $(DEVICE))" --wheelhouse "$(strip $(WHEELHOUSE))"
# Whatever Python is here already, nothing is installed for it: an environment that set-up could not fill is none.
BARE     = $(shell for python in $(if $(strip $(VENV)),"$(strip $(VENV))/bin/python") "$(PYTHON)"; do \
	"$$python" -c "import numpy, typer" 2>/dev/null && break; done; echo "$$python")

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev wheelhouse bench gpu-check audit test lint types report perf clean

help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{printf "%-18s%s\n", $$1, $$2}'
	@echo "Settings: MINUTES=$(MINUTES)  DEVICE=$(DEVICE)  CUDA=$(CUDA)  PYTHON=$(PYTHON)  VENV=$(VENV)  RESULTS=$(RESULTS)  (VENV= uses PYTHON as it is)"

setup: ## make the environment and install what this machine needs (quick when done before)
	$(NEED)
	$(SETUP)

setup-dev: ## the same with what test, lint and types need
	$(NEED)
	$(SETUP) --extra dev,audit

wheelhouse: ## collect packages for a machine without a network (CUDA=12, 13 or none; FOR_PYTHON=3.12)
	$(NEED)
	$(SETUP) --collect --for-python "$(strip $(FOR_PYTHON))" --for-machine "$(strip $(FOR_MACHINE))"

bench: ## measure this machine: ceilings, roofline, workloads (MINUTES=3, DEVICE=cuda:0, cpu or sim:NAME)
	$(NEED)
	$(SETUP)
	@$(PY) -m bench run --minutes $(MINUTES) --results "$(RESULTS)" $(if $(strip $(DEVICE)),--device "$(strip $(DEVICE))")

gpu-check: ## check on a GPU all that only a GPU can show, in under five minutes; installs nothing (OUT=results)
	@"$(BARE)" -m bench gpu-check $(if $(strip $(DEVICE)),--device "$(strip $(DEVICE))") $(ARGS)

test: setup-dev ## run the tests (no device needed)
	@$(PY) -m pytest $(ARGS)

lint: setup-dev ## check style and format
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .

types: setup-dev ## check the types of bench and kernels
	@$(PY) -m mypy

audit: ## compile each CUDA kernel for each architecture and check its machine code (needs no GPU)
	$(NEED)
	$(SETUP) --extra audit$(filter 12,$(strip $(CUDA)))
	@$(PY) -m bench audit $(ARGS)

report: setup ## remake table and plot of the newest run (RUN=FOLDER for another)
	@$(PY) -m bench report --results "$(RESULTS)" $(if $(strip $(RUN)),"$(strip $(RUN))")

perf: setup-dev ## race the kernels against C references in one run, interleaved
	@$(PY) -m tests.perf $(ARGS)

clean: ## remove the environment and caches made here; results stay
	@"$(PYTHON)" -I bench/environment.py --venv "$(strip $(VENV))" --remove
	@rm -rf .cache .mypy_cache .ruff_cache .pytest_cache .coverage htmlcov build *.egg-info
	@find bench kernels tests -name __pycache__ -type d -prune -exec rm -rf {} +
