# `make demo` annotates the example pairs. `make test` runs all tests that this machine supports. `.ci/run` also runs those
# marked `long`.
AGENT := .venv/bin/agent
DEMO_RUN := runs/demo

.PHONY: demo test unit lint bench clean

demo: .venv/.ready-run
	@scripts/ensure-sandbox
	$(AGENT) annotate examples/pairs.jsonl --model replay:examples/replies.jsonl --out $(DEMO_RUN) --timeout 5
	@printf '\nTo put agent on the PATH of this shell:\n  export PATH="%s/.venv/bin:$$PATH"\n' '$(CURDIR)'

test: .venv/.ready-dev
	@scripts/ensure-sandbox || true
	@scripts/ensure-browser || true
	.venv/bin/ruff check agent tests examples scripts/seccomp
	.venv/bin/ruff format --check agent tests examples scripts/seccomp
	.venv/bin/mypy --num-workers 2
	.venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not long" $(PYTEST_ARGS)

# Fast tests that need no sandbox, network, browser or real data. Excludes the tests of the command line.
unit: .venv/.ready-dev
	.venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --ignore tests/cli \
	  -m "not (docker or bwrap or network or chromium or real_data or slow or long)" $(PYTEST_ARGS)

lint: .venv/.ready-dev
	.venv/bin/ruff check --fix agent tests examples scripts/seccomp
	.venv/bin/ruff format agent tests examples scripts/seccomp
	.venv/bin/mypy --num-workers 2

bench: .venv/.ready-dev
	.venv/bin/python -m tests.benchmarks --max-ratio 3
	.venv/bin/python -m tests.benchmarks.calls
	.venv/bin/python -m tests.benchmarks.throughput --in-flight 96 --max-ratio 1.3
	.venv/bin/python -m tests.benchmarks.throughput --in-flight 512 --min-gain 1.4
	.venv/bin/python -m tests.benchmarks.modules
	.venv/bin/python -m tests.benchmarks.memory
	.venv/bin/python -m tests.benchmarks.reports
	.venv/bin/python -m tests.benchmarks.clusters
	.venv/bin/python -m tests.benchmarks.candidates
	.venv/bin/python -m tests.benchmarks.dump
	.venv/bin/python -m tests.benchmarks.guarantees
	.venv/bin/python -m tests.benchmarks.search_scores

clean:
	rm -rf .venv $(DEMO_RUN) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

.venv/.ready-run: pyproject.toml uv.lock scripts/set-up
	@scripts/set-up run

.venv/.ready-dev: pyproject.toml uv.lock scripts/set-up
	@scripts/set-up dev
