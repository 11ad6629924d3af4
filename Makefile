# make run    set up, simulate the sixteen-body chain on 2 ranks, draw its pictures in results/
# make test   set up, run the fast tests at 1, 2, 3 and 4 ranks
# make lint   ruff, mypy, and which room of the package imports from which
# make docs   the documentation in build/site, with what builds it; a link that leads nowhere is an error
# make fuzz   set up, try random systems against plain oracles on 1 to 4 ranks, for SECONDS=180
# make nightly  all of the following, one after the other, also behind one that fails; a table at the end
# make long   set up, run the tests that take longer, at 1, 2, 3 and 4 ranks; as root those under SLURM too, which it installs
# make checked  set up, run numeric tests at 1 and 2 ranks with kernels that hold all they read and write against its bounds
# make processors  set up, run fast numeric tests as on other processors: BLAS for SSE, AVX2, AVX-512, then lanes of 4 and of 2
# make environments  set up, build the wheel, install it with PETSc, then with MPICH, and run it there
# make robots set up, fetch packages that bring robots' files, compare these and random ones with MuJoCo and Pinocchio
# make faults set up, inject some 140 faults into running jobs of every topology (100 kill a rank), restart each
# make mutants  set up, seed some sixty faults into a copy of the package, tell which tests catch each
# make clean  remove what was made here (the set-up too)

SHELL := /bin/bash
BIN := .venv/bin

# Root may start MPI, and more ranks than cores may run, idle ones yielding: needed in containers and for the tests.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
export OMPI_MCA_rmaps_base_oversubscribe = 1
# One thread a rank: the ranks are the parallelism.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1

# Python's own compiled files are kept, out of the way: some 300 processes of the tests read them.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/python

RANKS ?= 2
TEST_RANKS ?= 1 2 3 4
# Tests of what kernels compute: with bounds they take several times as long, and others have nothing to find there.
CHECKED ?= $(addprefix tests/,kernels values sweep parts loops coupling closure dynamics stepping)
SECONDS ?= 180
unexport ARGS  # options of pytest or of the faults: job scripts know a variable of that name

.PHONY: run peers test long checked processors environments robots faults fuzz mutants nightly lint docs setup clean

setup:
	@bash .ci/setup

run: setup
	mpiexec -n $(RANKS) $(BIN)/python drivers/sixteen_body_chain.py --folder results

peers: setup
	@bash .ci/slurm
	@bash .ci/chromium

test: setup
	@bash .ci/test "$(TEST_RANKS)" "not long" $(ARGS)

long: peers
	@bash .ci/test "$(TEST_RANKS)" "long" $(ARGS)

checked: setup
	@MPIMBS_CHECKED=1 TEST_TIME_LIMIT=600 TEST_ALL_LIMIT=2400 bash .ci/test "1 2" "not long and not subprocess" $(CHECKED) $(ARGS)

processors: setup
	@bash .ci/processors $(ARGS)

environments: setup
	@bash .ci/environments

robots: setup
	@bash .ci/robots

faults: setup
	$(BIN)/python drivers/faults.py --folder results/faults $(ARGS)

fuzz: setup
	$(BIN)/python drivers/fuzz.py --seconds $(SECONDS) --folder results/fuzz $(ARGS)

mutants: setup
	$(BIN)/python drivers/mutants.py $(ARGS)

nightly: setup
	@bash .ci/stages "make long" "make checked" "make processors" "make environments" "make robots" "make faults" \
	  "make fuzz SECONDS=900" "make mutants"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	@$(BIN)/python -c 'import material, mkdocstrings_handlers.python' 2>/dev/null || \
	  $(BIN)/python -m pip --disable-pip-version-check -q install --no-build-isolation -e '.[docs]'
	@# not with -q: warnings that are not shown are no errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/mkdocs.yml

clean:
	rm -rf .venv build results *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
