"""Uploads of many requests through a balancer without affinity: any mirror of the cluster takes each of them."""
import os
import signal
import threading

import pytest

from harness.bucket import Bucket
from harness.image import Image, digest, errors
from harness.mirrord import free_port, until
from harness.round_robin import RoundRobin
from system.test_cluster import know


class World:
    def __init__(self, mirrord, bucket, folder):
        self.mirrord, self.bucket = mirrord, bucket
        self.keys, self.secret = bucket.keys_file(folder), folder / "cluster.secret"
        self.secret.write_text("a secret of this cluster\n")
        self.secret.chmod(0o600)
        self.nodes = [self.start() for _ in range(3)]
        know(bucket, 3)
        self.token = self.nodes[0].token("ci", "publish:models/me/*", "publish:models/datasets/me/*")
        self.front = RoundRobin(self.nodes)

    def start(self, **kw):
        port = free_port()
        return self.mirrord(f'''repo "models" {{ protocol = "hosted" }}
            listen "127.0.0.1:{port}" {{ }}
            cluster "{self.bucket.url}" {{ endpoint = "{self.bucket.endpoint}" region = "eu-test-1" authorization = "file:{self.keys}"
                                          secret = "file:{self.secret}" address = "http://127.0.0.1:{port}" }}''', **kw)

    def image(self, name, at=None):
        """Through the balancer, or at one mirror."""
        return Image(self.front if at is None else self.nodes[at], f"models/me/{name}", self.token)


@pytest.fixture
def world(mirrord, tmp_path):
    with Bucket() as b:
        w = World(mirrord, b, tmp_path)
        with w.front:
            yield w


BIG = os.urandom(3 << 20)


def test_an_image(world):
    layers = [BIG, b"small", os.urandom(100_000)]
    for i in range(3):
        image = world.image(f"img{i}")
        data = image.push("v1", layers)
        for at in range(3):
            reader = world.image(f"img{i}", at)
            got = reader.get("manifests/v1")
            assert (got.status, got.body) == (200, data)
            for layer in layers:
                assert reader.get(f"blobs/{digest(layer)}").body == layer
    asked = [line.rsplit(" ", 1)[1] for line in world.front.targets if " /v2/" in line]
    assert set(asked) == {"0", "1", "2"}


def test_an_image_in_chunks(world):
    image = world.image("chunks")
    where = image.begin()
    for at in range(0, len(BIG), 1 << 20):
        got = image.ask("PATCH", where, BIG[at:at + (1 << 20)], content_type="application/octet-stream",
                        content_range=f"{at}-{at + (1 << 20) - 1}")
        assert got.status == 202, got.body
        where = got["location"]
        assert image.ask("GET", where).status == 204
    wrong = image.ask("PATCH", where, b"x", content_range="5-5")
    assert wrong.status == 416 and errors(wrong) == ["BLOB_UPLOAD_INVALID"]
    assert image.ask("PUT", f"{where}?digest={digest(BIG)}", b"").status == 201
    data = image.push("v1", [BIG])
    assert world.image("chunks").get("manifests/v1").body == data
