"""libcurl.py - one transfer by the library that curl is made of, in this process: a curl program for each of some ten thousand requests is
most of what they cost, for it loads thirty libraries before it asks anything."""
import ctypes
import dataclasses
import os

WRITE = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
GLOBAL_ALL = 3
VERSIONS = {"h1": 2, "h2": 3, "h2c": 5}  # CURL_HTTP_VERSION_1_1, _2_0, _2_PRIOR_KNOWLEDGE
TOLD_VERSIONS = {1: "1", 2: "1.1", 3: "2"}
BUFFER_BYTES = 100 << 10  # curl's own

# CURLOPT_ and CURLINFO_, from curl.h
TIMEOUT_MS, NOSIGNAL, HTTP_VERSION, NOBODY, POST, BUFFERSIZE, PATH_AS_IS = 155, 99, 84, 44, 47, 98, 234
URL, POSTFIELDS, USERAGENT, HTTPHEADER, CUSTOMREQUEST, CAINFO, NOPROXY = 10002, 10015, 10018, 10023, 10036, 10065, 10177
WRITEFUNCTION, HEADERFUNCTION, POSTFIELDSIZE_LARGE = 20011, 20079, 30120
RESPONSE_CODE, TOLD_VERSION, TOTAL_S, FIRST_S = 0x200002, 0x20002e, 0x300003, 0x300011


@dataclasses.dataclass
class Transfer:
    rc: int        # a CURLcode, which is what curl exits with
    status: int
    version: str   # of HTTP
    head: bytes    # each head that came, and trailers
    body: bytes
    first_s: float
    total_s: float


def _load():
    lib = ctypes.CDLL("libcurl.so.4")  # calls let other threads of ours run
    lib.curl_easy_init.restype = lib.curl_slist_append.restype = ctypes.c_void_p
    lib.curl_slist_append.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.curl_version.restype = ctypes.c_char_p
    lib.curl_slist_free_all.argtypes = lib.curl_easy_cleanup.argtypes = lib.curl_easy_perform.argtypes = [ctypes.c_void_p]
    lib.curl_easy_setopt.argtypes = lib.curl_easy_getinfo.argtypes = [ctypes.c_void_p, ctypes.c_int]  # and one more, of its own type
    assert lib.curl_global_init(ctypes.c_long(GLOBAL_ALL)) == 0
    return lib, lib.curl_version().split()[0].replace(b"libcurl", b"curl")


_lib, _agent = _load()  # while there is one thread


def _collect(parts):
    def take(data, size, count, _):
        parts.append(ctypes.string_at(data, size * count))
        return size * count
    return WRITE(take)


def transfer(url, wire, fields, method=None, data=None, head=False, cacert=None, limit_s=120):
    """fields: lines of the request's head. What the server does is never an exception."""
    heads, bodies = [], []
    on_head, on_body = _collect(heads), _collect(bodies)
    handle, lines = _lib.curl_easy_init(), None

    def put(option, value):
        kind = ctypes.c_char_p if isinstance(value, bytes) else ctypes.c_long if isinstance(value, int) else lambda v: v
        rc = _lib.curl_easy_setopt(handle, option, kind(value))
        assert rc == 0, f"option {option} is not understood: {rc}"

    def told(info, kind):
        value = kind()
        assert _lib.curl_easy_getinfo(handle, info, ctypes.byref(value)) == 0
        return value.value

    try:
        for option, value in ((URL, os.fsencode(url)), (NOPROXY, b"*"), (PATH_AS_IS, 1), (TIMEOUT_MS, int(limit_s * 1000)), (NOSIGNAL, 1),
                              (HTTP_VERSION, VERSIONS[wire]), (USERAGENT, _agent), (BUFFERSIZE, BUFFER_BYTES), (HEADERFUNCTION, on_head),
                              (WRITEFUNCTION, on_body)):
            put(option, value)
        if cacert:
            put(CAINFO, os.fsencode(cacert))
        if data is not None:
            data = bytes(data)  # it is not copied, and so must outlive the transfer
            put(POST, 1)
            put(POSTFIELDSIZE_LARGE, len(data))
            put(POSTFIELDS, data)
        if head:
            put(NOBODY, 1)
        elif method:
            put(CUSTOMREQUEST, method.encode())
        for line in fields:
            lines = _lib.curl_slist_append(lines, os.fsencode(line))
        if lines:
            put(HTTPHEADER, ctypes.c_void_p(lines))
        rc = _lib.curl_easy_perform(handle)
        return Transfer(rc, told(RESPONSE_CODE, ctypes.c_long), TOLD_VERSIONS.get(told(TOLD_VERSION, ctypes.c_long), ""), b"".join(heads),
                        b"" if head else b"".join(bodies), told(FIRST_S, ctypes.c_double), told(TOTAL_S, ctypes.c_double))
    finally:
        _lib.curl_easy_cleanup(handle)
        _lib.curl_slist_free_all(lines)
