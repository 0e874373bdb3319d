# Every target makes the environment first, once; it is made again when pyproject.toml or the constraints change.
#   make PYTHON=/path/to/python3.12 ...     build it on that interpreter
#   make TORCH_INDEX=URL ...                take torch from that index (see docs/howto/installing.md)
#   make test ARGS="-k canvas"              anything after pytest's name; likewise for run
#   make test-slow ARGS="damaged_data"      some of the long checks
#   make test JOBS=0                        the suite in one process; two work side by side, and take from each other

VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
ARGS ?=
JOBS ?= 2
BESIDE := $(if $(filter-out 0,$(JOBS)),--numprocesses $(JOBS) --dist worksteal)
export PYTHON TORCH_INDEX
# Else each of the many processes compiles the program anew, which a person's own does once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-slow lint bench screenshots gpu doctor docs wheel release changelog clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

$(READY): pyproject.toml constraints.txt constraints-torch.txt scripts/environment.sh
	scripts/environment.sh $(VENV)

run: $(READY) ## open the window with the bundled example; without a display, do the same job headless
	$(PY) scripts/run.py $(ARGS)

test: $(READY) ## the whole suite, without a display
	QT_QPA_PLATFORM=$${QT_QPA_PLATFORM:-offscreen} $(PY) -m pytest $(BESIDE) $(ARGS)

test-slow: $(READY) ## long checks (kills, planted bugs, hostile files): all, or ARGS="NAME ..."; hours
	$(PY) -m tests.slow $(ARGS)

lint: $(READY) ## ruff on everything, its format too, mypy on all of app
	$(PY) -m ruff check .
	$(PY) -m ruff format --check --quiet .
	$(PY) -m mypy

bench: $(READY) ## every promise of speed, measured as ratios in one run
	$(PY) scripts/bench.py $(ARGS)

screenshots: $(READY) ## the pictures of README and docs, from a real window under Xvfb
	$(PY) scripts/under_xvfb.py scripts/screenshots.py $(ARGS)

gpu: $(READY) ## what takes a device, on this machine's accelerator; writes docs/measured/gpu.md
	$(PY) scripts/gpu.py $(ARGS)

doctor: $(READY) ## what this machine has and lacks
	@$(PY) -m app.cli.doctor

build/sphinx/.installed: $(READY) constraints-docs.txt
	rm -rf build/sphinx
	$(PY) -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes --target build/sphinx \
		--requirement constraints-docs.txt
	touch $@

docs: build/sphinx/.installed ## the manual in build/manual, without a network once Sphinx is there; a warning is an error
	PYTHONPATH=build/sphinx $(PY) -m scripts.manual

wheel: docs ## build dist/tapedeck_torch-VERSION.whl, with the manual
	$(PY) -m hatchling build -t wheel

release: wheel ## beside the wheel in dist: the source, what it pulls with licences and hashes, SHA-256 of all
	rm -f dist/*.tar.gz dist/SHA256SUMS
	$(PY) -m hatchling build -t sdist
	$(PY) -m scripts.packages dist/sbom.cdx.json
	cd dist && sha256sum *.whl *.tar.gz sbom.cdx.json > SHA256SUMS

changelog: build/sphinx/.installed ## write the fragments of changes/ into CHANGELOG.md: VERSION=0.2.0
	PYTHONPATH=build/sphinx $(PY) -m towncrier build --yes --name Tapedeck --version $(VERSION)

clean: ## remove the environment and the caches (results in out/ stay)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
