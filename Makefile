# Every target makes its own environment in .venv; nothing needs to be installed by hand but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test test-slow lint bench bench-solvers survey cards clean \
        study study-cato study-theory study-choices study-rates study-time study-epochs study-ablation \
        study-chart study-scaling study-efficiency study-gallery study-report

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

# The paper's evidence: each part is resumable and writes docs/studies/NAME; runs are kept in runs/studies.
BASELINES := fno wmt u_fno geo_fno u_no f_fno lsm galerkin ht_net oformer gnot factformer ono transolver saot
STUDY = $(BIN)/cato study $(1) --runs runs/studies/$(2) --out docs/studies/$(2)
study: study-theory study-choices study-rates study-time study-epochs study-ablation study-chart \
       study-scaling study-efficiency study-gallery study-report  ## everything below, about ten hours on two cores

study-theory: $(READY)  ## the paper's lemmas executed
	$(BIN)/cato study theory --out docs/studies/theory

study-clean:
	rm -rf $(VENV) build *.egg-info
