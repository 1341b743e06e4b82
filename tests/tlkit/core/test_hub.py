"""Loading by hub id, through the real hub client, against a hub on this machine that fails in every way."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hub_server import serve

from tlkit.models import BUNDLED, WAY_ON

# The client reads its address and its cache from the environment when it is imported, so each visit is a process.
VISIT = """
import json, sys
from tlkit.fitting.estimate import estimate_memory
from tlkit.models import load_model
from tlkit.settings import setup

setup()
for names in sys.stdin:
    outcomes = {}
    for name in json.loads(names):
        try:
            if name == "works/estimated":
                outcomes[name] = estimate_memory(name, "lora", sequence_length=64).peak
                continue
            loaded = load_model(name)
            weights = {key: value.double().sum().item() for key, value in loaded.model.state_dict().items()}
            outcomes[name] = {"tensors": loaded.tensors_loaded, "weights": weights}
        except Exception as error:
            outcomes[name] = {"kind": type(error).__name__, "said": str(error)}
    print(json.dumps(outcomes), flush=True)
"""
FAILURES = {
    "gated/tiny": "it is gated: accept its terms on its page",
    "missing/tiny": "the hub knows no such public model",
    "status-401/tiny": "the hub answered with status 401",
    "status-403/tiny": "the hub answered with status 403",
    "status-404/tiny": "the hub answered with status 404",
    "status-500/tiny": "the hub answered with status 500",
    "broken/tiny": "the hub could not be reached or stopped answering",
    "stalled/tiny": "the hub could not be reached or stopped answering",
    "not a model": "neither a preset nor a folder here, and no hub id",
}


@contextmanager
def visitor(address: str, home: Path) -> Iterator[Callable[[list[str]], dict]]:
    """A process of its own; what it is given loads names one after the other, and tells what came of each."""
    settings = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_DOWNLOAD_TIMEOUT": "1",
        "HF_HUB_ETAG_TIMEOUT": "1",
    }
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | settings
    said = home / "stderr"
    with said.open("a") as errors:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
        with subprocess.Popen([sys.executable, "-c", VISIT], env=environment, **pipes) as process:

            def load(names: list[str]) -> dict:
                print(json.dumps(names), file=process.stdin, flush=True)
                outcomes = process.stdout.readline()
                assert outcomes, said.read_text()
                return json.loads(outcomes)

            yield load


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A visit to the hub; and another one, which goes on after the hub is gone."""
    home = tmp_path_factory.mktemp("hub")
    with ExitStack() as second_visit:
        with serve(BUNDLED) as log:
            with visitor(log.address, home) as load:
                first = load(["works/tiny", "cut/tiny", "works/estimated", *FAILURES])
            progress, asked = (home / "stderr").read_text(), len(log.requests)
            load = second_visit.enter_context(visitor(log.address, home))
            again = load(["tiny", str(BUNDLED), "works/tiny"])
            later = log.requests[asked:]
        offline = load(["works/tiny", "never/seen"])
    return {"first": first, "progress": progress, "log": log, "again": again, "later": later, "offline": offline}


@pytest.fixture(scope="module")
def expected():
    from tlkit.models import load_model

    return {key: value.double().sum().item() for key, value in load_model("tiny").model.state_dict().items()}


def test_a_model_is_downloaded_with_progress_and_every_weight_arrives(hub, expected):
    assert hub["first"]["works/tiny"] == {"tensors": len(expected) - 1, "weights": expected}  # the head is tied
    assert "100%" in hub["progress"]


def test_a_download_cut_in_the_middle_is_taken_up_again(hub, expected):
    assert hub["first"]["cut/tiny"]["weights"] == expected
    assert hub["log"].downloads("cut/tiny/resolve/" + "c" * 40 + "/model.safetensors") == 2


def test_the_second_load_downloads_nothing(hub, expected):
    assert hub["again"]["works/tiny"]["weights"] == expected
    assert hub["later"] and not any("resolve" in path for method, path in hub["later"] if method == "GET")


def test_without_the_hub_the_cached_model_loads_and_another_is_refused(hub, expected):
    assert hub["offline"]["works/tiny"]["weights"] == expected
    refused = hub["offline"]["never/seen"]
    assert refused["kind"] == "ValueError" and "could not be reached" in refused["said"]


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_is_one_line_with_its_cause_and_the_way_on(hub, name):
    outcome = hub["first"][name]
    assert outcome["kind"] == "ValueError"
    assert repr(name) in outcome["said"] and FAILURES[name] in outcome["said"]
    assert outcome["said"].endswith(WAY_ON) and "\n" not in outcome["said"]


def test_the_bundled_model_asks_nobody(hub, expected):
    """Loaded in one process with another, which is the only model that the hub is asked about."""
    assert hub["again"]["tiny"]["weights"] == hub["again"][str(BUNDLED)]["weights"] == expected
    of_none = {path for _, path in hub["later"] if "works/tiny" not in path}
    assert hub["later"] and of_none <= {"api/agent-harnesses"}  # the client's own question, with its first one


def test_an_estimate_of_a_hub_model_reads_its_configuration_and_no_weights(hub):
    from tlkit.fitting.estimate import estimate_memory

    assert hub["first"]["works/estimated"] == estimate_memory("tiny", "lora", sequence_length=64).peak
    asked = [path for _, path in hub["log"].requests if "works/estimated/resolve/" in path]
    assert {path.rsplit("/", 1)[-1] for path in asked} == {"config.json"}
