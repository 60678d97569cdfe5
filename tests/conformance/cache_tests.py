#!/usr/bin/python3
"""cache_tests.py SUITE [NAME ...] - runs the public suite http-tests/cache-tests through a mirrord, and counts as docs/conformance.md does.

SUITE is a checkout of the suite. NAME is one of CONFIGURATIONS; without one all of them run. It needs node 20 or later, and no
package. The suite pauses for seconds between requests: on a busy machine, run it again before you believe a miss."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from harness.mirrord import Mirrord, free_port  # noqa: E402

# The fields that the suite invents, or looks for in answers.
PASSED = ["Server-*", "Client-Request-Count", "Request-Numbers", "Test-*", "X-Test-*", "Content-Foo", "X-Content-Foo", "Content-Location",
          "X-Frame-Options", "X-XSS-Protection", "CDN-Cache-Control", "Template-A", "Foo", "Bar", "Baz", "A", "B", "C"]
FORWARDED = ["Foo", "Bar", "Baz", "Abc", "Accept-Language"]


def texts(values):
    return "{" + ", ".join(f'"{v}"' for v in values) + "}"


AT_ONCE = "rule '' { refresh_floor = 0s }"
NO_DEFAULT = 'cache { default_ttl = "0s" }'
CONFIGURATIONS = {  # what the repo has beside origin and pass_headers; what stands outside it
    "defaults": ("", ""),
    "forward": (f"forward = {texts(FORWARDED)}", ""),
    "at-once": (AT_ONCE, NO_DEFAULT),
    "configured": (f'forward = {texts(FORWARDED)} targeted_cache_control = {{"CDN-Cache-Control"}} {AT_ONCE}', NO_DEFAULT),
}
LIST = """
import tests from './tests/index.mjs'
console.log(JSON.stringify(tests.flatMap(s => s.tests.filter(t => !t.browser_only).map(t => [t.id, t.kind || 'required', s.id]))))
"""


def node(suite, *arguments, preload=True, out=subprocess.PIPE, errors=subprocess.DEVNULL, **settings):
    command = ["node", "--no-warnings", *(["--import", HERE / "cache_tests.mjs"] if preload else []), *arguments]
    return subprocess.Popen(command, cwd=suite, stdout=out, stderr=errors, text=True, env=dict(os.environ, **settings))


def start_origin(suite, port, folder):
    child = node(suite, "test-engine/server/server.mjs", out=subprocess.DEVNULL, npm_config_protocol="http",
                 npm_config_port=str(port), npm_config_pidfile=str(folder / "origin.pid"))
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/number/0?0", timeout=10).close()
            return child
        except OSError:
            assert child.poll() is None, "the suite's origin did not come up"
            time.sleep(0.05)


def run(suite, name, only):
    inside, outside = CONFIGURATIONS[name]
    port = free_port()
    origin_url = f"http://127.0.0.1:{port}"
    config = f'{outside}\nrepo "mirror" {{ protocol = "generic" origin = "{origin_url}/" pass_headers = {texts(PASSED)} {inside} }}'
    m = Mirrord(config)
    origin = None
    try:
        m.start()
        origin = start_origin(suite, port, m.folder)
        client = node(suite, "test-engine/cli.mjs", npm_config_base=f"http://127.0.0.1:{m.port}/mirror", npm_config_id=only, npm_package_config_id="",
                      errors=None, CACHE_TESTS_ORIGIN=origin_url)
        out = client.communicate()[0]
        return out if only else json.loads(out)
    finally:
        if origin is not None:
            origin.kill()
            origin.wait()
        m.remove()


def report(name, tests, results):
    passed = [t for t in tests if results.get(t[0]) is True]
    required = [t for t in tests if t[1] == "required"]
    for id_, kind, group in tests:
        if results.get(id_) is not True:
            print(f"{name}: missed ({kind}, {group}) {id_}: {' '.join(results.get(id_) or ['not run'])}")
    print(f"{name}: {len(passed)} of {len(tests)}, required {sum(t in passed for t in required)} of {len(required)}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("suite", type=pathlib.Path)
    p.add_argument("names", nargs="*", metavar="NAME", help=" ".join(CONFIGURATIONS))
    p.add_argument("--id", default="", help="one case alone, with what was sent and received")
    a = p.parse_args()
    names = a.names or list(CONFIGURATIONS)
    if not set(names) <= set(CONFIGURATIONS):
        p.error(f"a NAME is one of: {' '.join(CONFIGURATIONS)}")
    tests = json.loads(node(a.suite, "--input-type=module", "-e", LIST, preload=False).communicate()[0])
    for name in names:
        results = run(a.suite, name, a.id)
        print(results) if a.id else report(name, tests, results)


if __name__ == "__main__":
    main()
