"""pip and uv, unmodified, install what the mirror keeps whole, with the index gone; and the same of this machine's own index."""
import json
import subprocess
import sys

import pytest

from harness.python_index import Index

PYTHON = "3.%d" % sys.version_info[1]


def run(command, env, cwd, fails=False):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def sync(m):
    done = m.ctl("--json", "sync", "run", "pypi", "--wait", check=False, limit_s=240)
    assert done.returncode == 0, (done.stdout, m.ctl("sync", "logs", "pypi", check=False).stdout)
    return json.loads(done.stdout)


def simple(m):
    return f"http://127.0.0.1:{m.port}/pypi/simple/"


@pytest.fixture(params=["json", "html"])
def synced(request, mirrord):
    with Index(request.param) as i:
        i.wheel("app", "1.0", ["lib>=1,<2", "only-win; sys_platform == 'win32'", "more; extra == 'all'"], ["all"])
        for v in ("1.0", "1.5", "2.0"):
            i.wheel("lib", v)
        i.wheel("more", "0.1")
        i.publish()
        m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{i.url}"
                        sync {{ requirements = {{"app[all]"}} python = {{"{PYTHON}"}} backoff = "50ms" }} }}""")
        sync(m)
        i.down()
        yield m


def pip(python, m, *args):
    return [python, "-m", "pip", *args, "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--index-url", simple(m)]


def test_pip_install(synced, python, client_env, tmp_path):
    out = tmp_path / "out"
    run(pip(python, synced, "install", "--target", out, "app[all]"), client_env, tmp_path)
    assert {p.name for p in out.glob("*.dist-info")} == {"app-1.0.dist-info", "lib-1.5.dist-info", "more-0.1.dist-info"}
    assert "No matching distribution" in run(pip(python, synced, "install", "--target", tmp_path / "no", "lib<1"), client_env, tmp_path, fails=True)


def test_uv_install(synced, python, client, client_env, tmp_path):
    out = tmp_path / "out"
    run([client("uv"), "pip", "install", "--no-config", "--no-cache", "--python", python, "--default-index", simple(synced),
         "--target", out, "app[all]"], client_env, tmp_path)
    assert (out / "lib-1.5.dist-info").exists()


def test_a_real_project(mirrord, index, python, client_env, tmp_path):
    """A small one with dependencies, of this machine's own index, which need not have metadata beside its wheels."""
    m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{index[:-len("simple/")]}"
                    sync {{ requirements = {{"jinja2", "python-dateutil"}} python = {{"{PYTHON}"}} newest = 1 tries = 1 }} }}""")
    assert sync(m)["outcome"] == "published"
    asked = m.upstream_requests()
    out = tmp_path / "out"
    run(pip(python, m, "install", "--target", out, "jinja2", "python-dateutil"), client_env, tmp_path)
    got = {p.name.split("-")[0].lower() for p in out.glob("*.dist-info")}
    assert {"jinja2", "markupsafe", "python_dateutil"} < got  # and what the newest one requires
    assert m.upstream_requests() == asked
    # What is here tells what it requires: the next run reads no wheel.
    assert sync(m)["outcome"] == "unchanged"
    assert m.upstream_requests() - asked == len(got)
