"""cargo, unmodified, with a sparse index behind a generic repo: crates come the same way where its config.json leads to the mirror."""
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile

import pytest

from harness.mirrord import SLOW

LASTS = "Cache-Control: max-age=600"


def crate(name, version):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for path, data in (("Cargo.toml", f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2018"\n'), ("src/lib.rs", "")):
            info = tarfile.TarInfo(f"{name}-{version}/{path}")
            info.size, info.mode = len(data), 0o644
            t.addfile(info, io.BytesIO(data.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


@pytest.fixture
def cargo(mirrord, origin, client, client_env, tmp_path):
    program = client("cargo")
    m = mirrord(f"""repo "crates" {{ protocol = "generic" origin = "{origin.url}/" rule '\\.crate$' {{ class = immutable }} }}""")
    env = dict(client_env, PATH=f"{pathlib.Path(program).parent}:{client_env['PATH']}", RUSTUP_HOME=os.environ.get("RUSTUP_HOME", str(pathlib.Path.home() / ".rustup")), CARGO_NET_RETRY="0")
    for tool in ("cargo", "rustc"):
        if subprocess.run(["sh", "-c", f"{tool} --version"], env=env, capture_output=True, check=False).returncode != 0:
            pytest.skip(f"{tool} does not start with a home of its own")
    origin.put("/index/config.json", body=json.dumps({"dl": m.url("/crates/files/{crate}-{version}.crate")}).encode(), fields=LASTS)
    data = crate("demo", "1.0.0")
    origin.put("/files/demo-1.0.0.crate", body=data)
    origin.put("/index/de/mo/demo", fields=LASTS, body=json.dumps({
        "name": "demo", "vers": "1.0.0", "deps": [], "features": {}, "cksum": hashlib.sha256(data).hexdigest(), "yanked": False}).encode() + b"\n")

    def run(project, *command):
        folder = tmp_path / project
        (folder / "src").mkdir(parents=True)
        (folder / "src/lib.rs").write_text("")
        (folder / "Cargo.toml").write_text(f'[package]\nname = "{project}"\nversion = "0.1.0"\nedition = "2018"\n[dependencies]\ndemo = "1"\n')
        (folder / ".cargo").mkdir()
        (folder / ".cargo/config.toml").write_text('[source.crates-io]\nreplace-with = "mirror"\n'
                                                   f'[source.mirror]\nregistry = "sparse+{m.url("/crates/index/")}"\n')
        done = subprocess.run([program, *command], cwd=folder, env=dict(env, CARGO_HOME=str(folder / "home")), capture_output=True, text=True,
                              timeout=600 * SLOW, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return folder

    run.m, run.origin, run.crate = m, origin, data
    return run


def test_cargo_fetches_and_costs_nothing_twice(cargo):
    for project in ("cold", "warm"):
        folder = cargo(project, "fetch")
        assert [p.read_bytes() for p in (folder / "home/registry/cache").glob("*/demo-1.0.0.crate")] == [cargo.crate]
        if project == "cold":
            cargo.m.settle()
            before = cargo.origin.requests
    assert cargo.origin.requests == before
