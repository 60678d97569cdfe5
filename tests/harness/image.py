"""A container image as clients push and pull it, request by request; and one as an OCI layout in a folder, for real clients."""
import gzip
import hashlib
import io
import json
import tarfile
from urllib.parse import urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def sha512(data):
    return "sha512:" + hashlib.sha512(data).hexdigest()


def descriptor(data, kind=LAYER, **more):
    return {"mediaType": kind, "digest": digest(data), "size": len(data), **more}


def text(doc):
    return json.dumps(doc).encode()


def manifest(config, layers, **more):
    return text({"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(config, CONFIG),
                 "layers": [descriptor(x) for x in layers], **more})


def index(manifests, **more):
    return text({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor(x, MANIFEST) for x in manifests], **more})


def errors(reply):
    assert reply["content-type"].startswith("application/json"), (reply.status, reply.body)
    return [e["code"] for e in json.loads(reply.body)["errors"]]


class Image:
    def __init__(self, m, name="models/me/img", token=None, wire="h1"):
        self.m, self.root, self.token, self.wire = m, f"/v2/{name}", token, wire

    def ask(self, method, path, data=None, **headers):
        """path: below the image, or as a Location has it."""
        path = path if path.startswith("/v2/") else f"{self.root}/{path}"
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        return self.m.put(path, data, self.wire, self.token, headers, method)

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def head(self, path):
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return self.m.get(f"{self.root}/{path}", self.wire, headers=headers, head=True)

    def begin(self):
        got = self.ask("POST", "blobs/uploads/", b"")
        assert got.status == 202, got.body
        return urlsplit(got["location"]).path

    def push_blob(self, data, name=None):
        got = self.ask("PUT", f"{self.begin()}?digest={name or digest(data)}", data, content_type="application/octet-stream")
        if name is None:
            assert got.status == 201 and got["docker-content-digest"] == digest(data), (got.status, got.body)
        return got

    def put_manifest(self, reference, data, kind=MANIFEST):
        return self.ask("PUT", f"manifests/{reference}", data, content_type=kind)

    def push(self, tag, layers, config=b"{}", **more):
        """-> the manifest's bytes."""
        for data in (config, *layers):
            self.push_blob(data)
        data = manifest(config, layers, **more)
        got = self.put_manifest(tag, data)
        assert got.status == 201 and got["docker-content-digest"] == digest(data), (got.status, got.body)
        return data

    def tags(self):
        got = self.get("tags/list")
        return json.loads(got.body)["tags"] if got.status == 200 else None


def layout(folder, files, tag="latest"):
    """An OCI layout with one layer for each of {name: bytes}; -> its manifest's digest."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def keep(data):
        (blobs / digest(data)[7:]).write_bytes(data)
        return data

    layers, plain = [], []
    for name, data in files.items():
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        plain.append(digest(raw.getvalue()))
        layers.append(keep(gzip.compress(raw.getvalue(), 1, mtime=0)))
    config = keep(text({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": plain}}))
    data = keep(manifest(config, layers))
    (folder / "index.json").write_bytes(text({"schemaVersion": 2, "manifests": [
        descriptor(data, MANIFEST, annotations={"org.opencontainers.image.ref.name": tag})]}))
    (folder / "oci-layout").write_bytes(text({"imageLayoutVersion": "1.0.0"}))
    return digest(data)
