"""npm, unmodified, through a generic repo that forwards Accept: some versions ask for abbreviated documents, some for full ones."""
import json
import subprocess

import pytest

from harness.mirrord import SLOW, until
from harness.npm import ASKS_SHORT, SHORT, Npm


@pytest.fixture
def npm(mirrord, client, client_env, tmp_path):
    """npm(project, command...) is what it printed, with a home of that project's; .registry is the origin, .m the mirror."""
    program = client("npm")
    version = subprocess.run([program, "--version"], env=client_env, capture_output=True, text=True, timeout=300 * SLOW, check=False).stdout.strip()
    if int(version.partition(".")[0] or 0) < 9:
        pytest.skip(f"npm {version or 'that does not start'}: where older ones take tarballs from was not looked into")
    registry = Npm()
    registry.publish("dep", "1.0.0")
    registry.publish("@me/scoped", "2.0.0")
    registry.publish("demo", "1.0.0", {"dep": "^1.0.0", "@me/scoped": "2"})
    m = mirrord(f"""repo "npm" {{ protocol = "generic" origin = "{registry.url}/" forward = {{ "Accept" }} rule '\\.tgz$' {{ class = immutable }} }}""")

    def run(project, *command, fails=False):
        folder = tmp_path / project
        folder.mkdir(exist_ok=True)
        if not (folder / "package.json").exists():
            (folder / "package.json").write_text(json.dumps({"name": project, "version": "1.0.0"}))
        env = dict(client_env, NPM_CONFIG_REGISTRY=m.url("/npm/"), NPM_CONFIG_CACHE=str(folder / ".cache"), NPM_CONFIG_AUDIT="false",
                   NPM_CONFIG_FUND="false", NPM_CONFIG_UPDATE_NOTIFIER="false", NPM_CONFIG_REPLACE_REGISTRY_HOST="always",
                   NPM_CONFIG_FETCH_TIMEOUT=str(300000 * SLOW), NPM_CONFIG_FETCH_RETRIES="0")
        done = subprocess.run([program, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=600 * SLOW, check=False)
        assert fails == (done.returncode != 0), done.stdout + done.stderr
        return done.stdout + done.stderr

    run.registry, run.m, run.folder = registry, m, tmp_path
    yield run
    registry.close()


def installed(npm, project, name):
    return json.loads((npm.folder / project / "node_modules" / name / "package.json").read_text())["version"]


def test_npm_installs_and_costs_nothing_twice(npm):
    npm("cold", "install", "demo")
    assert [installed(npm, "cold", n) for n in ("demo", "dep", "@me/scoped")] == ["1.0.0", "1.0.0", "2.0.0"]
    npm.m.settle()
    before = npm.registry.requests
    assert before == 6, "a document and a tarball of each"
    npm("warm", "install", "demo")
    assert installed(npm, "warm", "@me/scoped") == "2.0.0" and npm.registry.requests == before
    lock = json.loads((npm.folder / "warm/package-lock.json").read_text())
    assert lock["packages"]["node_modules/demo"]["integrity"] == npm.registry.packages["demo"]["1.0.0"]["dist"]["integrity"]
    (npm.folder / "again").mkdir()
    for name in ("package.json", "package-lock.json"):
        (npm.folder / "again" / name).write_text((npm.folder / "warm" / name).read_text())
    npm("again", "ci")
    assert installed(npm, "again", "dep") == "1.0.0" and npm.registry.requests == before


def test_npm_sees_the_full_document_beside_the_short_one(npm):
    full, short = npm.registry.things["/demo"], npm.registry.things[f"/demo#{ASKS_SHORT}"]
    for project in ("one", "two"):
        brief = npm.m.get("/npm/demo", headers={"Accept": ASKS_SHORT})
        assert brief.body == short.body and brief["content-type"] == SHORT
        seen = json.loads(npm(project, "view", "demo", "--json"))
        assert seen["description"] == "All of demo." and seen["dist-tags"] == {"latest": "1.0.0"}
        npm.m.settle()
    assert (full.requests, short.requests) == (1, 1)


def test_npm_while_the_registry_is_away(npm):
    npm("before", "install", "demo")
    npm.m.settle()
    npm.registry.close()
    npm("after", "install", "demo")
    assert installed(npm, "after", "demo") == "1.0.0"


def test_npm_refuses_a_tarball_that_is_not_the_one(npm):
    """What the mirror has of it is what the registry gave: npm's own check speaks."""
    path = "/dep/-/dep-1.0.0.tgz"
    npm.registry.put(path, body=npm.registry.things["/demo/-/demo-1.0.0.tgz"].body)
    assert "EINTEGRITY" in npm("work", "install", "demo", fails=True)


def test_npm_says_what_is_not_there(npm):
    assert "E404" in npm("work", "install", "nothing-of-that-name", fails=True)
    npm.registry.publish("nothing-of-that-name", "1.0.0")
    npm.m.ctl("cache", "rm", "npm/nothing")
    until(lambda: npm.m.get("/npm/nothing-of-that-name").status == 200)
    npm("work", "install", "nothing-of-that-name")
