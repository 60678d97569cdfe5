"""Fixtures of every test that runs whole programs: mirrord, a fake origin, and the wires between them."""
import fcntl
import json
import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness.curl import WIRES  # noqa: E402
from harness.mirrord import BUILD, ROOT, Mirrord, certificate  # noqa: E402
from harness.packing import pack  # noqa: E402


@pytest.fixture(params=WIRES)
def wire(request):
    """Scenarios run over HTTP/1.1, HTTP/2 with TLS and HTTP/2 in clear text alike."""
    return request.param


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """once(name, make) is what make() returns, as JSON. One worker calls it; the others wait for the result."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def result(name, make):
        path = folder / f"{name}.json"
        with open(path.with_suffix(".lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_text(json.dumps(make()))
        return json.loads(path.read_text())
    return result


@pytest.fixture(scope="session")
def packed(once, tmp_path_factory):
    """packed() is the folder where the build was packed, once for all workers: harness/packing.py."""
    def make():
        folder = tmp_path_factory.mktemp("packed") / "deb"
        pack(ROOT, folder)
        return str(folder)
    return lambda: pathlib.Path(once("packed", make))


@pytest.fixture(scope="session")
def cert(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("cert"))


def starter(cert, request):
    if not (BUILD / "mirrord").exists():
        pytest.fail(f"{BUILD}/mirrord is not built: run make")
    running = []

    def start(config, **kw):
        m = Mirrord(config, cert=cert, **kw)
        running.append(m)
        request.node.mirrords = running
        return m.start()

    yield start
    complaints = []
    for m in running:
        try:
            m.remove()
        except AssertionError as why:
            complaints.append(str(why))
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def mirrord(cert, request):
    """mirrord(config) starts one; all are stopped in order at the end, and must have nothing to complain about."""
    yield from starter(cert, request)


@pytest.fixture(scope="module")
def shared_mirrord(cert, request):
    """The same for all tests of a file that a worker runs: for tests that ask for names of their own, and look at nothing else."""
    yield from starter(cert, request)


@pytest.fixture
def origin():
    """The fake origin of harness/origin.py, on a free loopback port."""
    from harness.origin import Origin
    with Origin() as o:
        yield o


@pytest.fixture(scope="module")
def shared_origin():
    from harness.origin import Origin
    with Origin() as o:
        yield o


@pytest.fixture
def hub():
    """The fixture Hub of harness/hub.py; what must never reach a Hub has not."""
    from harness.hub import Hub
    with Hub() as h:
        yield h
        assert not h.leaks, h.leaks


@pytest.fixture
def client():
    """client("wget") is its path, or the test is skipped with the reason."""
    def find(program):
        path = shutil.which(program) or shutil.which(program, path=str(ROOT / ".venv/bin"))
        if path is None:
            pytest.skip(f"{program} is not installed")
        return path
    return find


LONG = ("test_newcomer.py", "test_trainer_survives.py", "test_zero_overlap.py", "test_nodes_trainer.py")


def pytest_collection_modifyitems(items):
    """In tests/system, the files of the longest tests come first: begun last, they would leave the other workers idle."""
    items.sort(key=lambda item: item.path.parent.name == "system" and (2 - (item.path.name in LONG)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the end of every mirrord's log."""
    report = (yield).get_result()
    if report.failed:
        item.has_failed = True
        for m in [*getattr(item, "mirrords", ()), *getattr(item.getparent(pytest.Module), "mirrords", ())]:
            report.sections.append((f"log of mirrord on port {m.port}", m.log()[-6000:]))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    """The folder of a test that passed is removed: those of all tests are tens of gigabytes, and pytest keeps them for three runs."""
    yield
    path = item.funcargs.get("tmp_path")
    if path and not hasattr(item, "has_failed") and f" {path}/" not in pathlib.Path("/proc/self/mountinfo").read_text(encoding="ascii"):
        shutil.rmtree(path, ignore_errors=True)
