"""What the tests stand on."""
from harness import mirrord


def test_ports_come_again_and_not_at_once(monkeypatch):
    """A long run asks for more ports than its share has."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw99")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "100")
    monkeypatch.setattr(mirrord, "_given", [])
    share = len(mirrord.ports_of(99, 100))
    given = [mirrord.free_port() for _ in range(3 * share)]
    for i in range(share // 3, len(given)):
        assert given[i] not in given[i - share // 3:i]
