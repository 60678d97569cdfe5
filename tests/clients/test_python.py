"""pip, uv, Poetry and pipx, unmodified, against this machine's package index through mirrord: all of the second set of clients is warm."""
import subprocess
import sys

import pytest

# Small, pure, without dependencies but for the second, which has one: nothing here depends on a version.
PACKAGES = ["six", "python-dateutil"]


@pytest.fixture
def pypi(mirrord, index):
    """A mirrord in front of the index; the repo's origin is the folder above simple/. Pages are fresh for as long as clients take."""
    assert index.endswith("/simple/"), index
    return mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{index[:-len('simple/')]}" rule '^simple/' {{ ttl = 1h }} }}""")


def run(command, env, cwd):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=600,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cold_and_warm(m, command_for, env, tmp_path):
    """The same with fresh folders twice: the second asks the origin for nothing."""
    for name in ("cold", "warm"):
        before = m.upstream_requests()
        out = tmp_path / name
        out.mkdir()
        run(command_for(out), env, tmp_path)
        m.settle()
        asked = m.upstream_requests() - before
        assert asked > 0 if name == "cold" else asked == 0, f"{name}: {asked} requests to the index"
        yield out


def simple(m):
    return f"http://127.0.0.1:{m.port}/pypi/simple/"


@pytest.mark.parametrize("features", [[], ["--use-feature=fast-deps"]], ids=["plain", "fast-deps"])
def test_pip_download(pypi, python, client_env, tmp_path, features):
    def command(out):
        return [python, "-m", "pip", "download", "--isolated", "--no-cache-dir", "--disable-pip-version-check",
                "--index-url", simple(pypi), *features, "-d", out, *PACKAGES]

    for out in cold_and_warm(pypi, command, client_env, tmp_path):
        assert {f.name.split("-")[0].replace("_", "-") for f in out.iterdir()} >= set(PACKAGES)


def test_pip_install(pypi, python, client_env, tmp_path):
    def command(out):
        return [python, "-m", "pip", "install", "--isolated", "--no-cache-dir", "--disable-pip-version-check",
                "--index-url", simple(pypi), "--target", out, *PACKAGES]

    for out in cold_and_warm(pypi, command, client_env, tmp_path):
        run([sys.executable, "-c", "import six, dateutil.parser"], dict(client_env, PYTHONPATH=str(out)), tmp_path)


def test_uv_install(pypi, python, client, client_env, tmp_path):
    uv = client("uv")

    def command(out):
        return [uv, "pip", "install", "--no-config", "--no-cache", "--python", python, "--default-index", simple(pypi),
                "--target", out, *PACKAGES]

    for out in cold_and_warm(pypi, command, client_env, tmp_path):
        run([sys.executable, "-c", "import six, dateutil.parser"], dict(client_env, PYTHONPATH=str(out)), tmp_path)


PROJECT = """
[project]
name = "work"
version = "1.0"
requires-python = ">=3.9"
dependencies = ["six", "python-dateutil"]
"""


def test_uv_project(pypi, python, client, client_env, tmp_path):
    """uv resolves a project for all platforms into a lock file, and installs what that names."""
    uv = client("uv")
    env = dict(client_env, UV_DEFAULT_INDEX=simple(pypi), UV_PYTHON=str(python), UV_NO_CACHE="1", UV_NO_CONFIG="1")

    def command(out):
        (out / "pyproject.toml").write_text(PROJECT)
        return [uv, "sync", "--project", out]

    for out in cold_and_warm(pypi, command, env, tmp_path):
        assert simple(pypi) in (out / "uv.lock").read_text()
        run([out / ".venv/bin/python", "-c", "import six, dateutil.parser"], client_env, tmp_path)


def test_poetry_project(pypi, python, client, client_env, tmp_path):
    poetry = client("poetry")
    env = dict(client_env, POETRY_VIRTUALENVS_IN_PROJECT="true", POETRY_NO_INTERACTION="1")

    def command(out):
        env["POETRY_CACHE_DIR"] = str(out / "cache")
        (out / "pyproject.toml").write_text(
            PROJECT + f'[tool.poetry]\npackage-mode = false\n[[tool.poetry.source]]\nname = "mirror"\nurl = "{simple(pypi)}"\n')
        return [poetry, "install", "--directory", out]

    for out in cold_and_warm(pypi, command, env, tmp_path):
        lock = (out / "poetry.lock").read_text()
        assert simple(pypi).rstrip("/") in lock and 'name = "python-dateutil"' in lock
        run([out / ".venv/bin/python", "-c", "import six, dateutil.parser"], client_env, tmp_path)


def test_pipx_install(pypi, client, client_env, tmp_path):
    """A program in a venv of its own; the pip in there, which pipx brings up to date first, comes from the mirror as well."""
    pipx = client("pipx")
    env = dict(client_env, PIP_INDEX_URL=simple(pypi), PIP_NO_CACHE_DIR="1", PIP_CONFIG_FILE="/dev/null", USE_EMOJI="0")

    def command(out):
        env.update(PIPX_HOME=str(out / "pipx"), PIPX_BIN_DIR=str(out / "bin"))
        return [pipx, "install", "--python", "/usr/bin/python3", "tabulate"]

    for out in cold_and_warm(pypi, command, env, tmp_path):
        run([out / "bin/tabulate", "--help"], client_env, tmp_path)
