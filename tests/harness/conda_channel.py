"""conda_channel.py - a channel at the fake origin: packages, and each form of the index that names them, in step or out of it."""
import bz2
import ctypes
import ctypes.util
import hashlib
import json
import random
import struct

FORMS = ("repodata.json", "repodata.json.zst", "repodata.json.bz2", "current_repodata.json")


def _zstd():
    lib = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_compressBound", "ZSTD_compress", "ZSTD_decompress", "ZSTD_isError"):
        getattr(lib, name).restype = ctypes.c_size_t
    lib.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    lib.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    lib.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    lib.ZSTD_isError.argtypes = [ctypes.c_size_t]
    return lib


def zstd(data):
    lib = _zstd()
    room = lib.ZSTD_compressBound(len(data))
    out = ctypes.create_string_buffer(room)
    n = lib.ZSTD_compress(out, room, data, len(data), 3)
    assert not lib.ZSTD_isError(n)
    return out.raw[:n]


def unzstd(data, room=64 << 20):
    lib = _zstd()
    out = ctypes.create_string_buffer(room)
    n = lib.ZSTD_decompress(out, room, data, len(data))
    assert not lib.ZSTD_isError(n), "no zstd"
    return out.raw[:n]


def pack(value):
    """msgpack, as much of it as an index has."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        data = value.encode()
        return (bytes([0xa0 | len(data)]) if len(data) < 32 else b"\xda" + struct.pack(">H", len(data))) + data
    if isinstance(value, bytes):
        return b"\xc5" + struct.pack(">H", len(value)) + value
    if isinstance(value, dict):
        head = bytes([0x80 | len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
        return head + b"".join(pack(k) + pack(v) for k, v in value.items())
    return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))


def unpack(data):
    value, rest = _unpack(data)
    assert not rest
    return value


def _unpack(d):
    def many(n, d):
        out = []
        for _ in range(n):
            value, d = _unpack(d)
            out.append(value)
        return out, d

    def mapped(n, d):
        out, d = many(2 * n, d)
        return dict(zip(out[::2], out[1::2])), d
    b = d[0]
    if b < 0x80:
        return b, d[1:]
    if b < 0x90:
        return mapped(b & 15, d[1:])
    if b < 0xa0:
        return many(b & 15, d[1:])
    if b < 0xc0:
        n = b & 31
        return d[1:1 + n].decode(), d[1 + n:]
    for code, fmt, make in ((0xc4, "B", bytes), (0xc5, "H", bytes), (0xc6, "I", bytes), (0xd9, "B", bytes.decode),
                            (0xda, "H", bytes.decode), (0xdb, "I", bytes.decode)):
        if b == code:
            size = struct.calcsize(">" + fmt)
            n = struct.unpack(">" + fmt, d[1:1 + size])[0]
            return make(d[1 + size:1 + size + n]), d[1 + size + n:]
    for code, fmt in ((0xcc, "B"), (0xcd, "H"), (0xce, "I"), (0xcf, "Q")):
        if b == code:
            size = struct.calcsize(">" + fmt)
            return struct.unpack(">" + fmt, d[1:1 + size])[0], d[1 + size:]
    if b in (0xdc, 0xde):
        n = struct.unpack(">H", d[1:3])[0]
        return (many if b == 0xdc else mapped)(n, d[3:])
    return {0xc0: None, 0xc2: False, 0xc3: True}[b], d[1:]


class Channel:
    """Packages of one subdirectory below `top` at an origin (harness/origin.py)."""

    def __init__(self, origin, top="", subdir="linux-64"):
        self.origin, self.folder = origin, f"{top}/{subdir}/"
        self.subdir = subdir
        self.records = {}
        self.made = 0

    def add(self, name, data, put=True, **record):
        """A package file; what the index says of it may be another than what it is."""
        if put:
            self.made += 1
            self.origin.put(self.folder + name, body=data, etag=f'"p-{self.made}-{hashlib.sha256(data).hexdigest()[:8]}"')
        self.records[name] = {"name": name.rsplit("-", 2)[0], "version": "1.0", "build": "0", "build_number": 0, "depends": [],
                              "subdir": self.subdir, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                              "md5": hashlib.md5(data).hexdigest(), **record}
        return data

    def grow(self, size):
        """So many bytes more of index, that do not pack well."""
        for n in range(-(-size // 20000)):
            self.records[f"pad-{n}-0.conda"] = {"name": "pad", "version": str(n), "build": "0", "build_number": 0, "depends": [],
                                                "license": random.Random(n).randbytes(10000).hex()}

    def document(self, **info):
        return json.dumps({"info": {"subdir": self.subdir, **info},
                           "packages": {k: v for k, v in self.records.items() if not k.endswith(".conda")},
                           "packages.conda": {k: v for k, v in self.records.items() if k.endswith(".conda")},
                           "removed": [], "repodata_version": 1}).encode()

    def publish(self, *forms, document=None, modified=1700000000, **info):
        """The index as it is now, in these forms, or all."""
        plain = self.document(**info) if document is None else document
        for form in forms or FORMS:
            body = zstd(plain) if form.endswith(".zst") else bz2.compress(plain) if form.endswith(".bz2") else plain
            self.origin.put(self.folder + form, body=body, last_modified=modified,
                            etag='"i-%s"' % hashlib.sha256(body).hexdigest()[:16], type="application/json")
        return plain

    def publish_shards(self, base_url="./", shards_base_url="./shards/", at=None, modified=1700000000):
        """A shard a package name, and the index of them; returns name -> path of its shard below the subdirectory."""
        names, paths = {}, {}
        for file, r in self.records.items():
            names.setdefault(r["name"], {})[file] = dict(r, sha256=bytes.fromhex(r["sha256"]), md5=bytes.fromhex(r["md5"]))
        shards = {}
        for name, files in names.items():
            body = zstd(pack({"packages": {k: v for k, v in files.items() if not k.endswith(".conda")},
                              "packages.conda": {k: v for k, v in files.items() if k.endswith(".conda")}, "removed": []}))
            shards[name] = hashlib.sha256(body)
            paths[name] = f"shards/{shards[name].hexdigest()}.msgpack.zst"
            self.origin.put((at or self.folder + "shards/") + shards[name].hexdigest() + ".msgpack.zst", body=body)
        body = zstd(pack({"info": {"base_url": base_url, "shards_base_url": shards_base_url, "subdir": self.subdir}, "version": 1,
                          "shards": {k: v.digest() for k, v in shards.items()}}))
        self.origin.put(self.folder + "repodata_shards.msgpack.zst", body=body, last_modified=modified,
                        etag='"s-%s"' % hashlib.sha256(body).hexdigest()[:16])
        return paths
