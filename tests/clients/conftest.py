"""Registries for the clients' tests: real ones, as this machine's clients are set up, else a skip that says why."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from harness import registries
from harness.mirrord import ROOT

VENV = ROOT / ".venv"


@pytest.fixture(scope="session")
def python_with():
    """python_with("torch") is a Python that has this module: TORCH_PYTHON, what `make test-heavy` installed, or the one of the tests."""
    def find(*modules):
        names = [os.environ["TORCH_PYTHON"]] if "TORCH_PYTHON" in os.environ else [ROOT / ".venv-heavy/bin/python", sys.executable]
        for name in names:
            if shutil.which(name) and subprocess.run([name, "-c", f"import {', '.join(modules)}"], capture_output=True, check=False).returncode == 0:
                return str(name)
        pytest.skip(f"no Python with {' and '.join(modules)}: make test-heavy installs one")
    return find


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
def home(mirrord, tmp_path):
    """A hosted repo as its clients' Hub, with a token for what is me/'s."""
    from clients.test_hub import World
    m = mirrord('repo "models" { protocol = "hosted" }')
    w = World(m, tmp_path)
    w.env.update(HF_ENDPOINT=m.url("/models"), HF_TOKEN=m.token("ci", "publish:models/me/*", "publish:models/datasets/me/*"))
    return w


@pytest.fixture
def client_env(tmp_path):
    """Nothing of the caller's own settings and caches reaches a client under test."""
    home = pathlib.Path(tmp_path, "home")
    home.mkdir()
    return {"PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
            "TMPDIR": str(tmp_path)}
