"""publishers.py - how clients of a registry, of a package index and of a Hub bring what they publish into the hosted repo "models".

Each takes send(method, path, body, headers) -> (status, headers, body), does all but the last request, and returns what will be there
by then, path -> bytes, and that request: true when it was answered well. None: something before it was not.
"""
import base64
import gzip
import hashlib
import json

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def named(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def below(url):
    return "/" + url.split("/", 3)[3] if "://" in url else url


def image(send, name, layer, config):
    """A configuration at once, a layer in two pieces, the manifest that names them."""
    base = f"/v2/models/me/{name}"
    half = len(layer) // 2
    if send("POST", f"{base}/blobs/uploads/?digest={named(config)}", config, {})[0] != 201:
        return None
    status, fields, _ = send("POST", base + "/blobs/uploads/", b"", {})
    if status != 202:
        return None
    where = below(fields["Location"])
    if send("PATCH", where, layer[:half], {"Content-Range": f"0-{half - 1}"})[0] != 202:
        return None
    if send("PUT", f"{where}?digest={named(layer)}", layer[half:], {})[0] != 201:
        return None
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": named(config), "size": len(config)},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": named(layer), "size": len(layer)}],
    }).encode()
    files = {f"{base}/blobs/{named(layer)}": layer, f"{base}/blobs/{named(config)}": config, base + "/manifests/latest": manifest}
    return files, lambda: send("PUT", base + "/manifests/latest", manifest, {"Content-Type": MANIFEST})[0] == 201


def python(send, name, version, data):
    """A source archive, as twine sends it: one request."""
    data = gzip.compress(data, 1, mtime=0)
    file = f"{name}-{version}.tar.gz"
    fields = {":action": "file_upload", "protocol_version": "1", "name": name, "version": version, "filetype": "sdist",
              "pyversion": "source", "metadata_version": "2.1", "sha256_digest": hashlib.sha256(data).hexdigest()}
    part = '--b0undary\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    body = b"".join(part.format(k, "").encode() + v.encode() + b"\r\n" for k, v in fields.items())
    body += part.format("content", f'; filename="{file}"').encode() + data + b"\r\n--b0undary--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=b0undary"}
    return {f"/models/simple/{name}/{file}": data}, lambda: send("POST", "/models/legacy/", body, kind)[0] == 200


def hub(send, name, large, small):
    """A commit of a file that came before it, as LFS, and of one that comes inside."""
    oid = hashlib.sha256(large).hexdigest()
    if send("POST", "/models/api/repos/create", json.dumps({"name": name, "organization": "me"}).encode(), {})[0] != 200:
        return None
    ask = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": len(large)}]}
    status, _, body = send("POST", f"/models/me/{name}.git/info/lfs/objects/batch", json.dumps(ask).encode(), {})
    if status != 200:
        return None
    if send("PUT", below(json.loads(body)["objects"][0]["actions"]["upload"]["href"]), large, {})[0] not in (200, 201):
        return None
    lines = [{"key": "header", "value": {"summary": "s"}},
             {"key": "lfsFile", "value": {"path": "large", "algo": "sha256", "oid": oid, "size": len(large)}},
             {"key": "file", "value": {"path": "small", "content": base64.b64encode(small).decode(), "encoding": "base64"}}]
    body = b"\n".join(json.dumps(x).encode() for x in lines)
    files = {f"/models/me/{name}/large": large, f"/models/me/{name}/small": small}
    return files, lambda: send("POST", f"/models/api/models/me/{name}/commit/main", body, {})[0] == 200
