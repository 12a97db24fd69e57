# make book · make test · make lab · make serve · make lint · make clean
#
# Everything runs in .venv, which is made by the first target that needs it and renewed when
# requirements.txt or pyproject.toml change. Another Python: make book PYTHON=/path/to/python3.12

VENV   := .venv
STAMP  := $(VENV)/.installed
RUN    := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
PORT   ?= 8000
# One worker a core pays: most tests are a single thread.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup book test lab serve lint format strip picture clean distclean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with all that the book and the tests need

$(STAMP): requirements.txt pyproject.toml tools/python.sh
	@python=$$(sh tools/python.sh "$(PYTHON)") && \
	if [ ! -x $(VENV)/bin/python ] || [ -n "$(PYTHON)" ]; then \
	    echo "making $(VENV) with $$("$$python" --version)"; "$$python" -m venv --clear $(VENV); \
	fi
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

book: $(STAMP) ## execute every chapter and build the pages into _build/html
	$(RUN) jupyter-book build . -W -n --keep-going

test: $(STAMP) ## run every test
	$(RUN) python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

lab: $(STAMP) ## open the chapters in JupyterLab
	$(RUN) jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/chapters

serve: ## look at the built pages on http://127.0.0.1:8000 (make serve PORT=…)
	@test -f _build/html/index.html || { echo "nothing is built yet: make book"; exit 2; }
	@echo "http://127.0.0.1:$(PORT)  (Ctrl-C ends it)"
	@$(VENV)/bin/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

lint: $(STAMP) ## ruff, mypy and the notebooks' form: what pre-commit runs
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) python -m tools.notebooks check

format: $(STAMP) ## let ruff mend what it can, and strip the notebooks
	$(RUN) ruff check --fix .
	$(RUN) ruff format .
	$(RUN) python -m tools.notebooks strip

strip: $(STAMP) ## remove outputs and counts from the notebooks
	$(RUN) python -m tools.notebooks strip

picture: $(STAMP) ## renew the README's picture from the built pages
	$(RUN) python -m tools.screenshot

clean: ## remove what was built, keep .venv
	rm -rf _build build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find gpt2lib tests tools book -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf $(VENV)
