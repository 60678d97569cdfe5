"""go, unmodified: its module proxies are plain files, so a generic repo is one."""
import io
import json
import subprocess
import zipfile

import pytest

from harness.mirrord import SLOW

MODULE = "example.test/demo"


def module(origin, version, needs=""):
    """As https://go.dev/ref/mod#goproxy-protocol has it."""
    mod = f"module {MODULE}\n\ngo 1.16\n{needs}".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in (("go.mod", mod), ("demo.go", b"package demo\n\nconst Version = \"" + version.encode() + b"\"\n")):
            z.writestr(f"{MODULE}@{version}/{name}", data)
    info = json.dumps({"Version": version, "Time": "2024-01-01T00:00:00Z"}).encode()
    for name, body in ((f"{version}.info", info), (f"{version}.mod", mod), (f"{version}.zip", out.getvalue())):
        origin.put(f"/{MODULE}/@v/{name}", body=body, fields="Cache-Control: public, max-age=604800")
    origin.put(f"/{MODULE}/@v/list", body=f"{version}\n".encode(), fields="Cache-Control: public, max-age=3600")  # the slowest machine takes less
    origin.put(f"/{MODULE}/@latest", body=info, fields="Cache-Control: public, max-age=3600")


@pytest.fixture
def go(mirrord, origin, client, client_env, tmp_path):
    program = client("go")
    m = mirrord(f"""repo "go" {{ protocol = "generic" origin = "{origin.url}/" rule '/@v/[^/]+\\.(info|mod|zip)$' {{ class = immutable }} }}""")

    def run(project, *command, fails=False):
        folder = tmp_path / project
        folder.mkdir(exist_ok=True)
        if not (folder / "go.mod").exists():
            (folder / "go.mod").write_text("module work\n\ngo 1.16\n")
        env = dict(client_env, GOPROXY=m.url("/go"), GOSUMDB="off", GOFLAGS="-modcacherw", GOTOOLCHAIN="local", GOPATH=str(folder / "path"),
                   GOCACHE=str(folder / "cache"))
        done = subprocess.run([program, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=600 * SLOW, check=False)
        assert fails == (done.returncode != 0), done.stdout + done.stderr
        return done.stdout + done.stderr

    run.m, run.origin, run.folder = m, origin, tmp_path
    return run


def test_go_gets_modules_and_costs_nothing_twice(go):
    module(go.origin, "v1.0.0")
    for project in ("cold", "warm"):
        go(project, "get", f"{MODULE}@v1.0.0")
        assert MODULE in (go.folder / project / "go.sum").read_text()
        if project == "cold":
            go.m.settle()
            before = go.origin.requests
    assert go.origin.requests == before


def test_go_finds_the_latest_and_says_what_is_not_there(go):
    module(go.origin, "v1.2.0")
    assert "v1.2.0" in go("work", "list", "-m", f"{MODULE}@latest")
    go.origin.put("/example.test/none/@v/list", status=410, words="gone: example.test/none was never here")
    go.origin.put("/example.test/none/@latest", status=410, words="gone: example.test/none was never here")
    assert "was never here" in go("work", "list", "-m", "example.test/none@latest", fails=True), "the proxy's own words"
