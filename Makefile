# Every target makes its own environment in .venv; nothing needs to be installed by hand but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test test-slow lint bench bench-solvers survey study-cato study-models cards choices clean

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cato needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## generate Darcy data, train CATO, evaluate, compare with the solver, write runs/demo/report.html
	$(BIN)/cato demo

test: $(READY) lint  ## the tests that CI runs, under 15 minutes on two cores
	$(BIN)/python -m pytest -n 2

test-slow: $(READY)  ## the checks that take minutes each
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## speed and memory, as ratios to a matmul of the same run
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/recipes.py

bench-solvers: $(READY)  ## seconds per sample of the six solvers, as ratios to a reference of the same run
	$(BIN)/python benchmarks/solvers.py

survey: $(READY)  ## 100 samples of each benchmark at paper resolution: statistics and pictures for the cards
	$(BIN)/python benchmarks/survey.py

study-cato: $(READY)  ## CATO on the six benchmarks at small scale, three seeds; about an hour on two cores, resumable
	$(BIN)/cato study compare --seeds 0 1 2 --runs runs/study-cato --out docs/benchmarks/results

study-models: $(READY)  ## every model on Darcy at small scale, the same minutes each; resumable
	$(BIN)/cato study compare --models cato fno wmt u_fno geo_fno u_no f_fno lsm galerkin ht_net oformer gnot factformer ono transolver saot \
	  --benchmarks darcy --minutes 4 --runs runs/study-models --out docs/models/darcy

cards: $(READY)  ## the model cards, from code, recipes and results
	$(BIN)/python benchmarks/cards.py

choices: $(READY)  ## the trainings behind our defaults, about an hour on two cores; resumable
	$(BIN)/python benchmarks/choices.py

clean:
	rm -rf $(VENV) build *.egg-info
