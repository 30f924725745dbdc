# Two commands do all the set-up: `make quickstart` and `make test`.
# The first of these Pythons that runs: one of pyenv may be on the path and not run.
PYTHON ?= $(firstword $(foreach each,python3.11 python3.12 python3.13,$(if $(shell $(each) -c 'print(1)' 2>/dev/null),$(each))) python3.11)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

export RAY_USAGE_STATS_ENABLED := 0
# The tests start hundreds of processes, each of which would compile alray anew. Images of containers often set this.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-all checks backward-test page-test screenshots pictures docs keys cluster-test install lint types layers unit unit-all docs-test coverage coverage-simulated coverage-report crash-states chaos simulated simulated-soonest gpu publish bench engines recomputation schedules links all-reduce replicas accuracy models exported huggingface studies findings recomputed published news replay sizes clean

quickstart: $(INSTALLED)
	$(BIN)/alray run specs/quickstart.yaml

# mypy and the tests of the simulated device fill the time in which the others wait.
test: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs --output-sync=target lint layers $(COLLECTED)
	@$(MAKE) --no-print-directory --jobs types unit simulated-soonest

test-all: checks unit-all docs-test simulated

# At once: mypy takes as long as all others.
checks: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs --output-sync=target lint types layers $(COLLECTED)

install: $(INSTALLED)

$(INSTALLED): requirements.lock pyproject.toml
	@echo "installing into $(VENV): about 7 GB, a few minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/shellcheck cluster/*.sh tests/cluster/*.sh
	$(BIN)/hadolint cluster/Dockerfile

types: $(INSTALLED)
	$(BIN)/mypy

layers: $(INSTALLED)
	$(BIN)/lint-imports

# pytest compiles each file of tests when it collects it, which takes as long as all else of a collection. Here it is done
# once, beside mypy, and not by five workers at the same time.
COLLECTED := build/tests/collected

$(COLLECTED): $(INSTALLED) $(shell find alray benchmarks tests -name '*.py')
	@mkdir -p $(@D)
	$(BIN)/python -m pytest -qq --collect-only -p no:cacheprovider > $@ || { cat $@; rm $@; false; }

# Five workers for two cores: one of them has the tests of the shared Ray, and many tests wait a good deal (tests/conftest.py).
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 5 --dist loadscope --durations=20 --durations-min=5
# `make unit TESTS=tests/config` runs a part.
TESTS ?= tests

unit: $(INSTALLED)
	$(PYTEST) --junitxml=build/tests/unit.xml $(TESTS)

# With the tests marked `full`: whole grids, of which `unit` takes a part. Those of clusters compare times over links, and
# have the machine for themselves in `make cluster-test`.
unit-all: $(INSTALLED)
	$(PYTEST) -m "" --ignore=tests/cluster

# What the pages say: their commands and examples run, their figures are the results', their links lead somewhere.
docs-test: $(INSTALLED)
	$(PYTEST) --junitxml=build/tests/docs.xml tests/docs

# Which lines of alray `unit` runs, in processes that are killed too: build/coverage/html/index.html. Twice the time.
# `make coverage-simulated` counts what `simulated` runs; after `make coverage` it adds them (`make coverage-report`).
COVERED := OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR) $(BIN)/python -m coverage run -m pytest -q --dist loadscope --timeout 600

coverage: $(INSTALLED)
	rm -rf build/coverage
	$(COVERED) -n 4 $(TESTS)
	@$(MAKE) --no-print-directory coverage-report

coverage-simulated: $(INSTALLED)
	ALRAY_TEST_DEVICE=simulated $(COVERED) -n 2 -m "" tests/gpu
	@$(MAKE) --no-print-directory coverage-report

coverage-report: $(INSTALLED)
	$(BIN)/python -m coverage combine -q --append
	$(BIN)/python -m coverage html -q
	$(BIN)/python -m coverage xml -q
	$(BIN)/python -m coverage report --format=total

# What a power cut, a full disk and requests that fail leave of a run: more than 10,000 states. Some minutes.
crash-states: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m full tests/core/storage/test_crash_states.py tests/core/storage/test_crash_objects.py

# A GPU runs backward passes in a thread of their own: `unit` once more, with each one in a new thread.
backward-test: $(INSTALLED)
	ALRAY_TEST_BACKWARD=thread $(PYTEST) $(TESTS)

# Pages in Chromium, which the distribution has: apt-get install chromium. Without it the tests are skipped.
page-test: $(INSTALLED)
	$(BIN)/python -m pytest -q -m full tests/report/test_in_browser.py

# What differs between a commit and this tree, over a fixed list of inputs (tests/replay). Five minutes on two cores.
BASE ?= HEAD

replay: $(INSTALLED)
	$(BIN)/python -m tests.replay $(BASE)

# Files, statements, tokens and functions of each room of alray, beside the commit before. Reported, never a limit.
sizes: $(INSTALLED)
	$(BIN)/python -m benchmarks.sizes

# A release: the files of news/ become the section of alray's version in CHANGELOG.md, and go.
news: $(INSTALLED)
	$(BIN)/python -m towncrier build --yes --version $$($(BIN)/python -c 'import alray; print(alray.__version__)')

# The pictures of pages in docs/pages.
screenshots: $(INSTALLED)
	$(BIN)/python -m benchmarks.screenshots

# The pictures of docs/methods.md and docs/pipelines.md.
pictures: $(INSTALLED)
	$(BIN)/python -m benchmarks.pictures

# The site of the docs. It is one folder, which needs no network; the files that its pages link to are beside it.
docs: $(INSTALLED)
	rm -rf build/site
	$(BIN)/python -m zensical build --strict
	cp -r --parents specs examples benchmarks/*.yaml plugins/*/spec.yaml build/site/
	@echo "build/site/docs/index.html; with a search: $(BIN)/python -m http.server -d build/site"

# docs/keys.md, from the grammar.
keys: $(INSTALLED)
	$(BIN)/python -m benchmarks.keys_page

# On real clusters, which the tests start: Ray's jobs, three hosts, Slurm, `ray up` over ssh. About ten minutes. As root it
# installs what is missing of Debian's packages; a test that lacks something says what, and is skipped.
cluster-test: $(INSTALLED)
	tests/cluster/install.sh
	$(BIN)/python -m pytest -q -m full tests/cluster

# Random faults on small runs, each in a room of its own made of namespaces: as root, or where users may make them. Some 12 s
# a fault on two cores. `make chaos SEED=1` draws others; `$(BIN)/python -m tests.chaos --only 17` plays one case again.
FAULTS ?= 300
SEED ?= 0

chaos: $(INSTALLED)
	$(BIN)/python -m tests.chaos --faults $(FAULTS) --seed $(SEED)

# The tests of a GPU, that an accelerator made of this processor can show. It cannot be taken out of a process
# again, so they have processes of their own.
SIMULATED := ALRAY_TEST_DEVICE=simulated OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadscope

simulated: $(INSTALLED)
	$(SIMULATED) -m "" tests/gpu

# A minute of it, for `make test`: what finds a missing wait, what a second device needs, and a case of the grid of same bits.
simulated-soonest: $(INSTALLED)
	$(SIMULATED) $(foreach each,waiting nccl simulated second_device shown,tests/gpu/test_$(each).py) \
		"tests/gpu/test_one_process.py::test_every_family_method_and_schedule[resnet-associated_learning-streamed]"

# Where a GPU is. Tests that need two say so where there is one. It prints the table of tests/gpu/shown.md.
gpu: $(INSTALLED)
	$(BIN)/python -m pytest -q -m "" tests/gpu

# Benchmarks write what they measure to build/benchmarks. `make publish` puts it into benchmarks/results and docs.
publish: $(INSTALLED)
	$(BIN)/python -m benchmarks.publish

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.streamed
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.trials
	$(BIN)/python -m benchmarks.clock
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.activation_memory
	$(BIN)/python -m benchmarks.searches
	$(BIN)/python -m benchmarks.brute_force

# Pipelines by alray's executor and by torch.distributed.pipelining, side by side; then beside a plain script. Twenty-five
# minutes.
engines: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.engines
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.plain_pipelines

# Recomputation before the gradient arrives, and after it. About a quarter of an hour.
recomputation: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.recomputation

schedules: $(INSTALLED)
	$(BIN)/python -m benchmarks.schedules
	$(BIN)/python -m benchmarks.laws
	$(BIN)/python -m benchmarks.uneven

# Training to a target over links between two hosts, which are namespaces: as root. An hour.
links: $(INSTALLED)
	$(BIN)/python -m benchmarks.links

all-reduce: $(INSTALLED)
	$(BIN)/python -m benchmarks.all_reduce

replicas: $(INSTALLED)
	$(BIN)/python -m benchmarks.replicas
	$(BIN)/python -m benchmarks.workers
	$(BIN)/python -m benchmarks.balance
	$(BIN)/python -m benchmarks.large_batch

accuracy: $(INSTALLED)
	$(BIN)/python -m benchmarks.accuracy

# Every model of torchvision, and one of each family of timm if timm is installed. Some hours; it goes on where it stopped.
models: $(INSTALLED)
	$(BIN)/python -m benchmarks.models

# Networks of one's own and of torchvision by every method, exported and evaluated in plain torch. Some minutes.
exported: $(INSTALLED)
	$(BIN)/python -m benchmarks.exported

# Small models of each family of transformers, made of configs: cut, trained on two stages, loaded by their classes. Ten minutes.
huggingface: $(INSTALLED)
	$(BIN)/python -m benchmarks.huggingface

# docs/findings.md and docs/predictions.md, from the reports in docs/studies.
findings: $(INSTALLED)
	$(BIN)/python -m benchmarks.findings_page
	$(BIN)/python -m benchmarks.predictions_page

# Every verdict of docs/studies once more, from the tables of trials, by code that shares none of alray's.
recomputed: $(INSTALLED)
	$(BIN)/python -m benchmarks.recomputed

# Pipelines that other people measured, in docs/predictions.md: predicted over measured, from docs/published_runs.
published: $(INSTALLED)
	$(BIN)/python -m benchmarks.predictions_page

# Five hours on two quiet cores; docs/studies.md has the minutes of each. A study that has a report in docs/studies is left out: delete it to run it again.
studies: $(INSTALLED)
	$(BIN)/python -m benchmarks.studies

clean:
	rm -rf $(VENV) build *.egg-info
