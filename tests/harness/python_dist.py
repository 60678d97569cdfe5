"""python_dist.py - distributions as build tools make them, small, and forms as upload clients send them."""
import base64
import hashlib
import io
import tarfile
import uuid
import zipfile


def metadata(name, version, requires_python=None, requires=(), more=""):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {r}" for r in requires]
    return "\n".join(lines) + "\n" + more + "\nA test's own package.\n"


def wheel(name, version, tag="py3-none-any", requires_python=None, requires=(), text=None, files=None, build=""):
    """(file name, bytes) of a sound wheel; text: another METADATA."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    members = {f"{name.replace('-', '_')}.py": f"VERSION = {version!r}\n".encode(), **(files or {}),
               f"{info}/METADATA": (text or metadata(name, version, requires_python, requires)).encode(),
               f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()}
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b'=').decode()},{len(d)}\n"
                     for n, d in members.items()) + f"{info}/RECORD,,\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for n, d in {**members, f"{info}/RECORD": record.encode()}.items():
            z.writestr(zipfile.ZipInfo(n), d)
    return f"{stem}{build}-{tag}.whl", out.getvalue()


def sdist(name, version, requires_python=None):
    stem = f"{name.replace('-', '_')}-{version}"
    members = {"PKG-INFO": metadata(name, version, requires_python), f"{name.replace('-', '_')}.py": f"VERSION = {version!r}\n",
               "setup.py": f"from setuptools import setup\nsetup(name={name!r}, version={version!r}, "
                           f"py_modules=[{name.replace('-', '_')!r}])\n"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for n, d in members.items():
            one = tarfile.TarInfo(f"{stem}/{n}")
            one.size = len(d.encode())
            t.addfile(one, io.BytesIO(d.encode()))
    return f"{stem}.tar.gz", out.getvalue()


def fields(file, data, name, version, **more):
    """What twine says of a file; None takes one away."""
    out = {":action": "file_upload", "protocol_version": "1", "metadata_version": "2.1", "name": name, "version": version,
           "filetype": "bdist_wheel" if file.endswith(".whl") else "sdist", "pyversion": "py3" if file.endswith(".whl") else "source",
           "sha256_digest": hashlib.sha256(data).hexdigest(), "md5_digest": hashlib.md5(data).hexdigest(),
           "blake2_256_digest": hashlib.blake2b(data, digest_size=32).hexdigest(), "content": (file, data)}
    out.update(more)
    return {k: v for k, v in out.items() if v is not None}


def form(values, boundary=None, order=None):
    """(Content-Type, body): values are texts or (file name, bytes)."""
    boundary = boundary or uuid.uuid4().hex
    body = b""
    for key in order or values:
        value = values[key]
        head = f'Content-Disposition: form-data; name="{key}"'
        if isinstance(value, tuple):
            head += f'; filename="{value[0]}"\r\nContent-Type: application/octet-stream'
            value = value[1]
        body += f"--{boundary}\r\n{head}\r\n\r\n".encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return f"multipart/form-data; boundary={boundary}", body + f"--{boundary}--\r\n".encode()
