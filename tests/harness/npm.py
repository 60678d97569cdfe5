"""npm.py - a registry of npm packages: a document of each in its full and its abbreviated form, chosen by Accept, and the tarballs.

    r = Npm(); r.publish("demo", "1.0.0", {"dep": "^1"}); r.url
"""
import base64
import hashlib
import io
import json
import tarfile

from harness.origin import Origin

SHORT = "application/vnd.npm.install-v1+json"
ASKS_SHORT = f"{SHORT}; q=1.0, application/json; q=0.8, */*"  # as npm (some versions), pnpm and yarn write it
LASTS = "Cache-Control: public, max-age=300|Vary: Accept-Encoding, Accept"


def tarball(name, version, needs):
    manifest = json.dumps({"name": name, "version": version, "main": "index.js", "dependencies": needs}).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for path, data in (("package/package.json", manifest), ("package/index.js", f'module.exports = "{name} {version}"\n'.encode())):
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o644
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Npm(Origin):
    def __init__(self):
        super().__init__()
        self.packages = {}

    def path(self, name):
        return "/" + name.replace("/", "%2F")

    def publish(self, name, version, needs=None):
        data = tarball(name, version, needs or {})
        path = f"/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        self.put(path, body=data, type="application/octet-stream", fields="Cache-Control: public, immutable, max-age=31557600")
        self.packages.setdefault(name, {})[version] = {
            "name": name, "version": version, "dependencies": needs or {},
            "dist": {"tarball": self.url + path, "shasum": hashlib.sha1(data).hexdigest(),
                     "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}}
        self.tell(name)

    def tell(self, name):
        versions = self.packages[name]
        short = {"name": name, "modified": "2024-01-01T00:00:00.000Z", "dist-tags": {"latest": list(versions)[-1]}, "versions": versions}
        full = dict(short, description=f"All of {name}.", readme="x" * 5000, time={v: "2024-01-01T00:00:00.000Z" for v in versions})
        self.put(self.path(name), body=json.dumps(full).encode(), by="Accept", type="application/json", fields=LASTS, etag=f'"f-{len(versions)}"')
        self.put(f"{self.path(name)}#{ASKS_SHORT}", body=json.dumps(short).encode(), type=SHORT, fields=LASTS, etag=f'"s-{len(versions)}"')
