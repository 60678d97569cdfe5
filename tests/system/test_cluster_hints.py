"""Hints through Redis: with a poll of a minute, a mirror without `secret` and `address` has at once what another one has published; and
whatever becomes of Redis, nothing but that changes."""
import os
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, SLOW, free_port, until
from system.test_cluster import bucket, has, node, seen  # noqa: F401  (fixtures)

PASSWORD = "correct horse"


class Redis:
    """A real one. It keeps its port over a restart."""

    def __init__(self, folder, password=None):
        self.folder, self.port, self.child = folder, free_port(), None
        self.more = ["--requirepass", password] if password else []
        self.env = dict(os.environ, REDISCLI_AUTH=password or "")

    url = property(lambda self: f"redis://127.0.0.1:{self.port}")

    def start(self):
        self.child = subprocess.Popen([shutil.which("redis-server") or shutil.which("valkey-server"), "--port", str(self.port), "--bind", "127.0.0.1",
                                       "--save", "", "--dir", self.folder, *self.more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self("PING") == "PONG")
        return self

    def __call__(self, *words):
        program = shutil.which("redis-cli") or shutil.which("valkey-cli")
        done = subprocess.run([program, "-p", str(self.port), *words], capture_output=True, text=True, check=False, env=self.env, timeout=60 * SLOW)
        return done.stdout.strip()

    def stop(self):
        if self.child:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
            self.child.wait()
            self.child = None


@pytest.fixture
def redis(tmp_path):
    if not (shutil.which("redis-server") or shutil.which("valkey-server")):
        pytest.skip("redis-server is not installed")
    r = Redis(tmp_path).start()
    yield r
    r.stop()


def up(m):
    return m.metric("mirrord_cluster_hints_up") == 1


def two(node, redis, poll="60s"):
    mirrors = [node(f'hints = "{redis.url}"', poll=poll) for _ in range(2)]
    for m in mirrors:
        until(lambda m=m: up(m))
    return mirrors


def test_what_is_published_is_known_at_once(node, redis):
    a, b = two(node, redis)
    token = a.token("ci", "publish:models/*")
    until(lambda: b.put("/models/me/gpt/b", b"from b", token=token).status == 201)
    for i in range(20):
        assert a.put("/models/me/gpt/x", str(i).encode(), token=token).status in (200, 201)
        seen(b, "/models/me/gpt/x", str(i).encode())
    seen(a, "/models/me/gpt/b", b"from b")
    a.reaches("mirrord_cluster_hints_total", 20, direction="sent")
    b.reaches("mirrord_cluster_hints_total", 1, direction="received")
    said = b.ctl_json("cluster", "status")
    assert said["hints"] == "up" and said["hints_received"] > 0, said


def test_redis_comes_and_goes(node, redis):
    """Killed, emptied and stopped: publishes are answered, the others have them after a poll, and hints come back."""
    a, b = two(node, redis, poll="300ms")
    token = a.token("ci", "publish:models/*")

    def works(name):
        data = os.urandom(8)
        until(lambda: a.put(f"/models/me/gpt/{name}", data, token=token).status == 201)
        seen(b, f"/models/me/gpt/{name}", data)
    works("first")
    redis("FLUSHALL")
    works("emptied")
    redis.stop()
    for m in (a, b):
        until(lambda m=m: not up(m))
        said = m.ctl_json("cluster", "status")
        assert said["hints"] not in ("up", "") and said["state"] == "up", said
    works("killed")
    redis.start()
    for m in (a, b):
        until(lambda m=m: up(m))
    works("back")
    redis.child.send_signal(signal.SIGSTOP)
    works("stopped")
    for m in (a, b):
        until(lambda m=m: not up(m))
    works("still")
    redis.child.send_signal(signal.SIGCONT)
    for m in (a, b):
        until(lambda m=m: up(m))
    works("continued")


def test_a_redis_with_a_password(node, tmp_path, redis):
    """The wrong one is a reason in the status, and nothing else."""
    locked = Redis(tmp_path, PASSWORD).start()
    try:
        keys = {}
        for name, text in (("right", PASSWORD), ("wrong", "no"), ("both", f"default:{PASSWORD}")):
            keys[name] = tmp_path / f"redis.{name}"
            keys[name].write_text(text + "\n")
            keys[name].chmod(0o600)
        a = node(f'hints = "{locked.url}/a%20channel" hints_authorization = "file:{keys["right"]}"')
        b = node(f'hints = "{locked.url}" hints_authorization = "file:{keys["both"]}"')
        c = node(f'hints = "{locked.url}" hints_authorization = "file:{keys["wrong"]}"')
        for m in (a, b):
            until(lambda m=m: up(m))
        until(lambda: "WRONGPASS" in c.ctl_json("cluster", "status")["hints"])
        assert PASSWORD not in a.log() + b.log() + c.log()
    finally:
        locked.stop()


def test_strangers_on_the_channel(node, bucket, redis):
    """Numbers that are none, or of no entry, and texts beyond measure: a look at the log at most."""
    a, b = two(node, redis)
    channel = f"mirrord:{bucket.url}"
    for text in ("", "x", "-1", "999999999999999999999999", "18446744073709551615", "1", "7 8"):
        assert redis("PUBLISH", channel, text) == "2"
    subprocess.run(["/bin/sh", "-c", f"yes 'PUBLISH {channel} 18446744073709551615' | head -3000 | "
                    f"{shutil.which('redis-cli') or shutil.which('valkey-cli')} -p {redis.port} >/dev/null"], check=True, timeout=120 * SLOW)
    redis("PUBLISH", channel, "9" * 10000)
    for m in (a, b):
        m.says("cluster.hints_away")
        until(lambda m=m: up(m))
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"1", token=token).status == 201
    seen(b, "/models/me/gpt/x", b"1")


@pytest.mark.parametrize("answer", [b"", b"\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*4\r\n*4\r\n", b"$99999999\r\n", b"+OK\r\n" * 10, None])
def test_what_answers_is_not_redis(node, answer):
    """None: it accepts no connection's bytes and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve():
            while True:
                try:
                    c, _ = server.accept()
                except OSError:
                    return
                connections.append(c)
                if answer is not None:
                    c.sendall(answer)
                    c.close()
        threading.Thread(target=serve, daemon=True).start()
        m = node(f'hints = "redis://127.0.0.1:{server.getsockname()[1]}"')
        token = m.token("ci", "publish:models/*")
        for i in range(20):
            assert m.put(f"/models/me/gpt/{i}", b"1", token=token).status == 201
        until(lambda: m.ctl_json("cluster", "status")["hints"] != "up" and connections)
        assert has(m, "/models/me/gpt/1", b"1") and not up(m)
        m.stop()
        server.close()


@pytest.mark.parametrize("url, words", [("rediss://127.0.0.1", "TLS to Redis is not supported"), ("http://127.0.0.1", "is no address of Redis"),
                                        ("redis://user:pw@127.0.0.1", "hints_authorization"), ("redis://", "is no address of Redis")])
def test_an_address_that_is_none(tmp_path, url, words):
    conf = tmp_path / "mirrord.conf"
    (tmp_path / "keys").write_text("a:b\n")
    (tmp_path / "keys").chmod(0o600)
    conf.write_text(f'state_dir = "{tmp_path}/state" cluster "s3://mirror/prod/" {{ authorization = "file:{tmp_path}/keys" hints = "{url}" }}\n')
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 78 and words in done.stderr, done
