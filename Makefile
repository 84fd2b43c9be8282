# Ottla's front door. Each target builds its own virtual environment in .venv; a machine needs only make and Python 3.11 or later.
#
#   make demo                    a broker, a third of a million real records, two consumers, checked counts (KEEP=1 leaves it running)
#   make demo-pipeline           two Spark pipelines on the same records, kill -9 on the way, exactly once proved from the log, a picture
#   make demo-cluster            three brokers and a ZooKeeper, brokers killed with -9 while records are published and read, a picture
#   make test                    the tests of a change: of parts, of real clients against a real broker, of real Spark jobs
#   make test T=tests/storage    a part of them: a folder, a file, or what pytest's options select
#   make unit                    the quick tests that need no other program than Python
#   make lint                    ruff, mypy --strict, import layers, rules of style (tests/tidy), generated docs, a quick simulation
#   make check                   lint and unit, beside each other
#   make bench                   what one broker costs, next to a bare loop;  make bench-peer: next to Apache Kafka
#   make bench-cluster           three brokers on a ZooKeeper, next to three of Apache Kafka 3.9
#   make bench-churn             15 minutes of what clients create and drop, and what it leaves in memory
#   make spark-versions T=4.1    tests of pipelines with PySpark 4.1, without T with 4.0 to 4.3 and the refusal of 3.5; CI runs 4.3 only
#   make bench-spark             the Spark source and sink, next to Spark's own Kafka connector on the same broker
#   make bench-latency           how long a record takes through a pipeline, next to Spark's connector, Kafka Streams and Flink
#   make damage                  three brokers, one with a damaged disk: every kind of damage in every place, what is lost and when all is whole
#   make sim SEED=7 SEEDS=100    simulated brokers under faults, from seed 7 on
#   make night                   the tests that `make test` leaves out, and many more examples, seeds, schedules and kills of the others
#   make golden                  captures the frames of tests/golden again, from real clients and a broker; read the diff
#   make rewrite                 renews generated docs and transcripts; read the diff before you commit it
#   make site                    the documentation's site, in build/site; make site-check looks at every page and at README in Chromium
#   make screenshots             pictures of the console's main pages in Chromium, in build/screenshots
#   make dist                    wheel and source distribution in dist/, checked, the wheel tried in an empty environment of each Python
#   make hashes                  renews the hashes in requirements/*.txt after a version there was changed
#   make clean                   removes what the targets above have made

PYTHON ?= python3
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Most tests of `make test` wait, for a timeout or for another process: with one worker more than cores a third of the cores' time was idle.
WORKERS ?= $(shell echo $$((2 * $(CORES))))
T ?=
SEED ?= 1
SEEDS ?= 20

BIN := .venv/bin
STAMP := .venv/.ready
SPARK := .venv/.spark-ready
PYTEST := $(BIN)/python -m pytest -q
# Folders and files that `make unit` leaves out: most of their time is that of other processes, of long waits or of many schedules.
SLOW := $(addprefix tests/,clients cloning clusters docs hostile release sim spark_jobs testing \
  adapters/test_worker_process.py cli/broker/test_running.py cli/broker/test_snapshot.py cli/broker/test_start.py \
  cli/broker/test_start_secured.py cli/check cli/test_examples.py cli/test_interruptions.py cli/top \
  client/blocking/test_consumer_waits.py client/blocking/test_interruptions.py client/blocking/test_producer_waits.py \
  server/test_closing.py server/test_compaction_schedule.py server/test_open_files.py server/test_service.py \
  spark/test_failure_matrix.py spark/test_relay_model.py spark/test_staged_attach.py)

# Compiled modules are kept: compiling them again is half the time that a broker, a command or a test's module needs to start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-pipeline demo-cluster test unit lint check bench bench-peer bench-cluster bench-spark bench-latency bench-churn spark-versions damage sim night golden rewrite site site-check screenshots dist hashes clean

help:
	@sed -n '2,/^$$/s/^#  \{0,1\}//p' Makefile

$(STAMP): pyproject.toml requirements/dev.txt ottla/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is older than Python 3.11; say PYTHON=/path/to/a/newer/one" >&2; exit 1; }
	@test -x $(BIN)/python || { rm -rf .venv; $(PYTHON) -m venv .venv; } || \
	  { rm -rf .venv; echo "make: $(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "make: installing requirements/dev.txt into .venv" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(SPARK): $(STAMP) requirements/spark.txt
	@echo "make: installing requirements/spark.txt into .venv" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement requirements/spark.txt
	@touch $@

demo: $(STAMP)
	@$(BIN)/python tools/demo.py

demo-pipeline: $(SPARK)
	@$(BIN)/python -m tools.demo_pipeline

demo-cluster: $(SPARK)
	@$(BIN)/python -m tools.demo_cluster

test: $(SPARK)
	@$(PYTEST) -n $(WORKERS) -m "not night" $(T)

unit: $(SPARK)
	@$(PYTEST) -n $(WORKERS) -m "not foreign and not night" $(addprefix --ignore=,$(SLOW) tests/tidy)

lint: $(STAMP)
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST) tests/tidy
	@$(BIN)/python -m tests.sim SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --share SEED=$(SEED) SEEDS=$(SEEDS)

check: $(STAMP)
	@$(MAKE) --no-print-directory --jobs=2 lint unit

bench: $(SPARK)
	@$(BIN)/python -m tools.bench.main
	@$(BIN)/python -m tools.bench.requests
	@$(BIN)/python -m tools.bench.attacks
	@$(BIN)/python -m tools.bench.turns
	@$(BIN)/python -m tools.bench.security
	@$(BIN)/python -m tools.bench.frame

bench-churn: $(STAMP)
	@$(BIN)/python -m tools.bench.churn

bench-peer: $(STAMP)
	@$(BIN)/python -m tools.bench.peer
	@$(BIN)/python -m tools.bench.security --kafka
	@$(BIN)/python -m tools.compare_quotas

bench-cluster: $(STAMP)
	@$(BIN)/python -m tools.bench.cluster
	@$(BIN)/python -m tools.bench.replicated_write --kafka
	@$(BIN)/python -m tools.bench.write_path
	@$(BIN)/python -m tools.bench.coordinator_path
	@$(BIN)/python -m tools.bench.write_timeline
	@$(BIN)/python -m tools.bench.cluster_partitions

damage: $(STAMP)
	@$(BIN)/python -m tools.damage_table

bench-spark: $(SPARK)
	@$(BIN)/python -m tools.bench.spark_codec
	@$(BIN)/python -m tools.bench.typed_values
	@$(BIN)/python -m tools.bench.spark
	@$(BIN)/python -m tools.bench.spark_workers

bench-latency: $(SPARK)
	@$(BIN)/python -m tools.bench.latency
	@$(BIN)/python -m tools.bench.batch_budget

spark-versions: $(SPARK)
	@$(BIN)/python -m tools.spark_versions $(T)

sim: $(STAMP)
	@$(BIN)/python -m tests.sim SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --share SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --cluster SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --groups SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --shares SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --members SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --streams SEED=$(SEED) SEEDS=$(SEEDS)
	@$(BIN)/python -m tests.sim --deletions SEED=$(SEED) SEEDS=$(SEEDS)

night: $(SPARK)
	@HYPOTHESIS_PROFILE=night OTTLA_RELAY_SCHEDULES=20000 $(PYTEST) -n $(WORKERS) --timeout=7200 --ignore=tests/clients --ignore=tests/spark_jobs
	@$(PYTEST) -n $(WORKERS) -m night tests/clients tests/spark_jobs
	@OTTLA_SPARK_KILL_RUNS=30 OTTLA_SPARK_KILL_SEED=$$(date +%s) $(PYTEST) tests/spark_jobs/test_kills.py tests/spark_jobs/test_table_kills.py
	@$(BIN)/python -m tests.sim SEED=$$(date +%s) SEEDS=2000
	@$(BIN)/python -m tests.sim --share SEED=$$(date +%s) SEEDS=2000
	@$(BIN)/python -m tests.sim --cluster SEED=$$(date +%s) SEEDS=2000
	@$(BIN)/python -m tests.sim --groups SEED=$$(date +%s) SEEDS=2000
	@$(BIN)/python -m tests.sim --shares SEED=$$(date +%s) SEEDS=2000
	@$(BIN)/python -m tests.sim --members SEED=$$(date +%s) SEEDS=2000
	@$(BIN)/python -m tests.sim --streams SEED=$$(date +%s) SEEDS=2000
	@$(BIN)/python -m tests.sim --deletions SEED=$$(date +%s) SEEDS=2000

golden: $(STAMP)
	@$(BIN)/python -m tests.golden.record

rewrite: $(STAMP)
	@$(BIN)/python -m tools.docs
	@OTTLA_REWRITE=1 $(PYTEST) tests/scenarios
	@OTTLA_REWRITE=1 $(PYTEST) tests/docs

# Environments of their own: what the site, publishing or the hashes need is never what the tests find.
build/%-env/.ready: requirements/%.txt
	@rm -rf build/$*-env && $(PYTHON) -m venv build/$*-env
	@echo "make: installing $< into build/$*-env" >&2
	@build/$*-env/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement $<
	@touch $@

site: build/docs-env/.ready
	@NO_MKDOCS_2_WARNING=1 build/docs-env/bin/mkdocs build --quiet
	@build/docs-env/bin/python -m tools.site.readme
	@echo "make: the site is in build/site, its front page is build/site/index.html"

# Not part of `make test`: it takes minutes. It needs a browser (on Debian: apt install chromium).
site-check: site
	@$(PYTHON) -m tools.site.check

screenshots: $(STAMP)
	@$(BIN)/python -m tools.screenshots

dist: build/dist-env/.ready
	@build/dist-env/bin/python -m tools.dist

# uv knows the hashes of all files of a version, those for other platforms and Pythons included.
hashes: build/hashes-env/.ready
	@build/hashes-env/bin/python -m tools.requirement_hashes build/hashes-env/bin/uv

clean:
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
