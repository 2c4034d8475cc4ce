# Every target makes its own environment in .venv; nothing needs to be installed by hand but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test test-slow lint generate check-generated docs bench bench-serve bench-solvers bench-export animation survey cards pretrained clean \
        study study-theory study-ablation-defaults study-ablation-heads-rope study-ablation-ns-plasticity study-lr-sweep study-time study-epochs study-ablation \
        study-chart study-scaling study-efficiency study-gallery study-report

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cato needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## generate Darcy data, train CATO, evaluate, compare with the solver, write runs/demo/report.html
	$(BIN)/cato demo

test: $(READY) lint check-generated  ## what CI runs, under 8 minutes on two cores
	$(BIN)/python -m pytest -n 2

test-slow: $(READY)  ## the checks that take minutes each
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

generate: $(READY)  ## write every generated page, card and table from the results files
	$(BIN)/python -m tools.generate

check-generated: $(READY)  ## fail if a generated page differs from its results file
	$(BIN)/python -m tools.generate --check

docs: $(READY)  ## the documentation as a site, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html"

bench: $(READY)  ## speed and memory of CATO as ratios to a matmul, and training times of the recipes
	$(BIN)/python -m tools.speed
	$(BIN)/python -m tools.recipes

bench-serve: $(READY)  ## requests per second and latency of the service, with and without batching
	$(BIN)/python -m tools.serve

bench-solvers: $(READY)  ## seconds per sample of all solvers, as ratios to a reference
	$(BIN)/python -m tools.solvers

bench-export: $(READY)  ## which models can be exported, and how exactly
	$(BIN)/python -m tools.exports

animation: $(READY)  ## docs/images/rollout.gif, the animation of the README
	$(BIN)/python -m tools.animation

survey: $(READY)  ## 100 samples of each benchmark at paper resolution: statistics and pictures for the cards
	$(BIN)/python -m tools.survey

# The paper's evidence: each part is resumable and writes docs/studies/NAME; runs are kept in runs/studies.
BASELINES := fno wmt u_fno geo_fno u_no f_fno lsm galerkin ht_net oformer gnot factformer ono transolver saot
BEST_IN_TIME := geo_fno f_fno u_no fno factformer
# Of the recipes' steps, the same for what shares trainings of CATO.
SHARE := --share 0.4 --runs runs/studies/epochs
STUDY = $(BIN)/python -m reproduce $(1) --runs runs/studies/$(2) --out docs/studies/$(2)
study: study-theory study-ablation-defaults study-ablation-heads-rope study-ablation-ns-plasticity study-lr-sweep study-time study-epochs study-ablation study-chart \
       study-scaling study-efficiency study-gallery study-report  ## everything below, about eight hours on two cores

study-theory: $(READY)  ## the paper's lemmas executed
	$(BIN)/python -m reproduce theory --out docs/studies/theory

study-ablation-defaults: $(READY)  ## what the paper leaves open, decided on validation; the defaults follow
	$(call STUDY,ablation,ablation-defaults) --benchmarks darcy elasticity --share 0.2 \
	  --questions "rotary scale" heads "width of the MLP" projections stencil "width of the chart" \
	  "scale of the residual updates" neighbours slices

study-ablation-heads-rope: $(READY)  ## the open choices that mattered most, on more benchmarks and with more seeds
	$(call STUDY,ablation,ablation-heads-rope) --benchmarks darcy pipe navier_stokes --share 0.2 --seeds 0 1 2 \
	  --questions "heads and rotary scale"

study-ablation-ns-plasticity: $(READY)  ## what makes CATO better where it is not first
	$(call STUDY,ablation,ablation-ns-plasticity) --benchmarks navier_stokes plasticity --minutes 1 \
	  --questions chart "rotary scale" heads stencil capacity "batch size" "frames in a step"

study-lr-sweep: $(READY)  ## the same sweep of learning rates for every model
	$(call STUDY,rates,lr-sweep) --minutes 0.5

study-time: $(READY)  ## every model on every benchmark in the same time
	$(call STUDY,compare,time) --models cato $(BASELINES) --minutes 1.5 --seeds 0 1 2 --rivals 2

study-epochs: $(READY)  ## the strongest models with the same epochs
	$(call STUDY,compare,epochs) --models cato saot transolver $(BEST_IN_TIME) $(SHARE) --seeds 0 1 2 --rivals 2

study-ablation: $(READY)  ## CATO without each of its parts
	$(call STUDY,ablation,ablation) --benchmarks darcy airfoil $(SHARE) --seeds 0 1 2 --answer-seeds 1 \
	  --questions chart attention "local operator" loss "few samples" optimizer "rotary scale"

study-chart: $(READY)  ## the learned chart beside the physical grid
	$(call STUDY,chart,chart) $(SHARE) --seeds 0 1 2

study-scaling: $(READY)  ## errors against samples, resolution, depth and width
	$(call STUDY,scaling,scaling) --share 0.15

study-efficiency: $(READY)  ## parameters, operations, time and memory at the paper's settings
	$(call STUDY,efficiency,efficiency)

study-gallery: $(READY)  ## pictures of the models side by side, of the runs of study-time
	$(BIN)/python -m reproduce gallery --minutes 1.5 --runs runs/studies/time --out docs/studies/gallery

study-report: $(READY)  ## docs/results.md and docs/results.html
	$(BIN)/python -m reproduce report

pretrained: $(READY)  ## train, evaluate and package the models that come with cato; about an hour on two cores, resumable
	$(BIN)/python -m tools.pretrained

cards: $(READY)  ## the model cards, from code, recipes and results
	$(BIN)/python -m tools.cards

clean:
	rm -rf $(VENV) build *.egg-info
