"""Registries for the clients' tests: real ones, as this machine's clients are set up, else a skip that says why."""
import pathlib

import pytest

from harness import registries
from harness.mirrord import ROOT

VENV = ROOT / ".venv"


@pytest.fixture(scope="session")
def archive():
    found, why = registries.apt_archive()
    if found is None:
        pytest.skip(why)
    return found


@pytest.fixture(scope="session")
def python():
    if not (VENV / "bin/pip").exists():
        pytest.skip("no .venv with Python clients: run make deps with a package index in reach")
    return VENV / "bin/python"


@pytest.fixture(scope="session")
def index(python):
    found, why = registries.pip_index(str(python))
    if found is None:
        pytest.skip(why)
    return found


@pytest.fixture
def client_env(tmp_path):
    """Nothing of the caller's own settings and caches reaches a client under test."""
    home = pathlib.Path(tmp_path, "home")
    home.mkdir()
    return {"PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
            "TMPDIR": str(tmp_path)}
