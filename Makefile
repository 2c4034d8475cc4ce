# Every target makes its own environment in .venv; nothing needs to be installed by hand but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# Without compiled bytecode every process spends seconds on compiling PyTorch's sources again.
unexport PYTHONDONTWRITEBYTECODE

STUDIES := theory ablation-defaults ablation-heads-rope recipe-screen metric-inputs recipe precision lr-sweep epochs screen time published flux-head \
           ablation ablation-cloud long-run why-not ablation-ns-plasticity chart scaling efficiency gallery

# Every target is a command, but for those that are files.
.PHONY: $(shell sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' Makefile) $(STUDIES:%=study-%)

# Everything but PyTorch, whose builds differ from machine to machine, is installed by the hashes of requirements.lock.
$(READY): pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cato needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)  ## generate Darcy data, train CATO, evaluate, compare with the solver, write runs/demo/report.html
	$(BIN)/cato demo

test: $(READY)  ## what CI runs, at most 8 minutes on two cores
	$(MAKE) --jobs 3 --output-sync=target lint check-generated fast-tests

fast-tests: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(READY)  ## the checks that take minutes each
	$(BIN)/python -m pytest -m slow

test-wheel: $(READY)  ## build sdist and wheel, check them, install the wheel into an empty environment and predict
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

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

bench-gpu: $(READY)  ## what `bench` measures, on a GPU, for the same page
	$(BIN)/python -m tools.speed --device cuda
	$(BIN)/python -m tools.recipes --device cuda

bench-serve: $(READY)  ## requests per second and latency of the service, with and without batching
	$(BIN)/python -m tools.serve

bench-solvers: $(READY)  ## seconds per sample of all solvers, as ratios to a reference
	$(BIN)/python -m tools.solvers

bench-mesh-parallel: $(READY)  ## memory, bytes and time of a training step whose mesh is spread over processes
	$(BIN)/python -m tools.mesh_parallel

bench-scale: $(READY)  ## the cost model of docs/scale.md: steps, matmul, copy and messages
	$(BIN)/python -m tools.scale

bench-export: $(READY)  ## which models can be exported, and how exactly
	$(BIN)/python -m tools.exports

bench-range: $(READY)  ## verdicts and coverage of the band on inputs unlike the training's
	$(BIN)/python -m tools.training_range

bench-fine-tuning: $(READY)  ## fine-tuning against training from scratch on small data; about 40 minutes on one core, resumable
	$(BIN)/python -m tools.fine_tuning

bench-streaming: $(READY)  ## memory and speed of streamed data; needs 10 GB of disk
	$(BIN)/python -m tools.streaming

bench-user-data: $(READY)  ## the default on user data against version 0.1 and other models; about two hours on one core, resumable
	$(BIN)/python -m tools.user_data

bench-advice: $(READY)  ## predictions of cato advise against whole trainings; about an hour on one core, resumable
	$(BIN)/python -m tools.advice

bench-first-report: $(READY)  ## time from a file in each layout to its report; about an hour on two idle cores, resumable
	$(BIN)/python -m tools.first_report

hostile: $(READY)  ## attacks on files, commands and service, at most 40 minutes; writes docs/trust.md
	$(BIN)/python -m tools.hostile

animation: $(READY)  ## docs/images/rollout.gif, the animation of the README
	$(BIN)/python -m tools.animation

notebooks: $(READY)  ## execute the tutorials in examples/notebooks and keep their outputs; about half an hour on two cores
	$(BIN)/python -m tools.notebooks

survey: $(READY)  ## 100 samples of each benchmark at paper resolution: statistics and pictures for the cards
	$(BIN)/python -m tools.survey

# The paper's evidence, defined in reproduce/experiments.toml: every experiment is resumable and writes docs/studies/NAME.
study: $(STUDIES:%=study-%) study-pages  ## all experiments that are missing; docs/studies.md has their costs

$(STUDIES:%=study-%): study-%: $(READY)  ## one experiment; `python -m reproduce` lists them
	$(BIN)/python -m reproduce $*

study-pages: $(READY)  ## docs/results.md, docs/studies.md and all pages of docs/studies, from the results files
	$(BIN)/python -m reproduce pages

pretrained: $(READY)  ## train three seeds of the models that come with cato, package the medians; about three hours on two cores, resumable
	$(BIN)/python -m tools.pretrained

cards: $(READY)  ## the model cards, from code, recipes and results
	$(BIN)/python -m tools.cards

AUDIT := build/audit/bin
$(AUDIT)/python:
	$(PYTHON) -m venv build/audit
	$@ -m pip install --quiet --disable-pip-version-check pip-audit uv

lock: $(AUDIT)/python  ## requirements.lock: the versions of constraints.txt with the hashes of their files for all platforms
	echo "torch; sys_platform == 'never'" > build/without-torch.txt
	$(AUDIT)/uv pip compile --quiet --universal --python-version 3.11.7 --generate-hashes --no-header --no-annotate \
	    --override build/without-torch.txt --no-emit-package torch -c constraints.txt --extra dev pyproject.toml -o requirements.lock

audit: $(AUDIT)/python  ## known vulnerabilities of the locked dependencies; fails where no advisory database can be reached
	$(AUDIT)/pip-audit --strict --disable-pip --no-deps --progress-spinner off -r requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info
