"""python_index.py - a package index of small real wheels, made here: pages in JSON or HTML, sidecars, lies to order.

    i = Index(); i.wheel("demo", "1.0", requires=["dep>=1"]); i.sdist("old", "1.0"); i.publish(); i.url
"""
import base64
import hashlib
import io
import json
import re
import tarfile
import zipfile

from harness.origin import Origin

JSON = "application/vnd.pypi.simple.v1+json"


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata(name, version, requires=(), extras=()):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Provides-Extra: {x}" for x in extras] + [f"Requires-Dist: {r}" for r in requires]
    return ("\n".join(lines) + "\n\nA package for tests.\n").encode()


def wheel(name, version, requires=(), extras=(), tags="py3-none-any", more=None, packing=zipfile.ZIP_DEFLATED):
    """more: files that come first, by path."""
    stem = re.sub(r"[-_.]+", "_", name)
    info = f"{stem}-{version}.dist-info"
    meta = metadata(name, version, requires, extras)
    files = {**(more or {}), f"{stem}/__init__.py": f"version = {version!r}\n".encode(), f"{info}/METADATA": meta,
             f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tags}\n".encode()}
    def row(p, b):
        digest = base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b"=").decode()
        return f"{p},sha256={digest},{len(b)}\n"
    files[f"{info}/RECORD"] = ("".join(row(p, b) for p, b in files.items()) + f"{info}/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packing) as z:
        for path, data in files.items():
            z.writestr(zipfile.ZipInfo(path, (2024, 1, 1, 0, 0, 0)), data, packing)
    return f"{stem}-{version}-{tags}.whl", out.getvalue(), meta


class Index:
    def __init__(self, form="json"):
        self.origin, self.form, self.projects, self.ranges = Origin(), form, {}, True

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.down()

    @property
    def url(self):
        return self.origin.url + "/"

    def add(self, name, filename, data, **more):
        self.projects.setdefault(normal(name), {})[filename] = dict(data=data, **more)
        return filename

    def wheel(self, name, version, requires=(), extras=(), tags="py3-none-any", sidecar=True, inside=None, **more):
        filename, data, meta = wheel(name, version, requires, extras, tags, inside)
        return self.add(name, filename, data, meta=meta if sidecar else None, **more)

    def sdist(self, name, version, **more):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as t:
            data = metadata(name, version)
            member = tarfile.TarInfo(f"{name}-{version}/PKG-INFO")
            member.size = len(data)
            t.addfile(member, io.BytesIO(data))
        return self.add(name, f"{name}-{version}.tar.gz", out.getvalue(), meta=None, **more)

    def entry(self, filename, f):
        digest = f.get("digest") or hashlib.sha256(f["data"]).hexdigest()
        out = {"filename": filename, "url": f"../../pool/{filename}", "hashes": {"sha256": digest}, "size": len(f["data"]),
               "yanked": f.get("yanked", False)}
        if f.get("python"):
            out["requires-python"] = f["python"]
        if f["meta"]:
            out["core-metadata"] = {"sha256": f.get("meta_digest") or hashlib.sha256(f["meta"]).hexdigest()}
        return out

    def page(self, name):
        files = [self.entry(n, f) for n, f in self.projects[name].items()]
        if self.form == "json":
            return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": files}).encode()
        rows = []
        for f in files:
            more = ' data-requires-python="%s"' % f["requires-python"].replace(">", "&gt;") if "requires-python" in f else ""
            more += ' data-core-metadata="sha256=%s"' % f["core-metadata"]["sha256"] if "core-metadata" in f else ""
            more += ' data-yanked="%s"' % f["yanked"] if f["yanked"] else ""
            rows.append(f'<a href="{f["url"]}#sha256={f["hashes"]["sha256"]}"{more}>{f["filename"]}</a>')
        return ("<!DOCTYPE html><html><body>" + "\n".join(rows) + "</body></html>").encode()

    def publish(self):
        for name, files in self.projects.items():
            self.origin.put(f"/simple/{name}/", body=self.page(name), type=JSON if self.form == "json" else "text/html")
            for filename, f in files.items():
                self.origin.put(f"/pool/{filename}", body=f.get("lie") or f["data"], ranges=self.ranges)
                if f["meta"]:
                    self.origin.put(f"/pool/{filename}.metadata", body=f["meta"])

    def down(self):
        if not self.origin.closing:
            self.origin.close()
