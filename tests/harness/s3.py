"""s3.py - a bucket of S3 on loopback that takes no request whose signature it has not reckoned out for itself, and the
disturbances that a mirror of one has to live with, to order. Virtual hosts and paths both name the bucket."""
import base64
import datetime
import email.utils
import hashlib
import hmac
import re
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

from harness import serving
from harness.tree_origin import Handler as TreeHandler

ACCESS, SECRET, REGION, BUCKET = "AKTEST", "s3cr/et+Key=", "eu-test-1", "models"
BORN = 1700000000.123
AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
                           r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})")


class No(Exception):
    """more: elements of its document. fields: of its head."""

    def __init__(self, status, code, message="", fields=None, **more):
        super().__init__(code)
        self.status, self.code, self.message, self.fields, self.more = status, code, message, fields or {}, more


def quoted(raw, safe="-._~"):
    return urllib.parse.quote(raw, safe=safe)


def canonical_query(query):
    """Sorted, each part encoded anew; '+' is a plus here, as S3 reads it."""
    parts = [p.partition("=") for p in query.split("&") if p]
    return "&".join(f"{n}={v}" for n, v in sorted((quoted(urllib.parse.unquote_to_bytes(n)), quoted(urllib.parse.unquote_to_bytes(v)))
                                                  for n, _, v in parts))


def signature(secret, day, region, text):
    key = ("AWS4" + secret).encode()
    for step in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def signed(method, host, path, secret=SECRET, access=ACCESS, region=REGION, payload=hashlib.sha256().hexdigest(), query=""):
    """Fields of a request of our own to a real server. path: encoded."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    fields = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": now}
    names, scope = ";".join(fields), f"{now[:8]}/{region}/s3/aws4_request"
    canonical = "\n".join([method, path, canonical_query(query), *(f"{n}:{v}" for n, v in fields.items()), "", names, payload])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return dict(fields, Authorization=f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, "
                                      f"Signature={signature(secret, now[:8], region, text)}")


class Handler(TreeHandler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        o = self.server.origin
        target = urllib.parse.urlsplit(self.path)
        try:
            self.judge(o, target)
            key = self.key_of(o, target)
            query = dict(urllib.parse.parse_qsl(target.query, keep_blank_values=True))
            with o.lock:
                o.requests.append((self.command, self.path, dict(self.headers.items())))
            verdict = o.disturb(key, query) if o.disturb is not None else None
            if verdict == "cut":
                return self.cut()
            if isinstance(verdict, No):
                raise verdict
            if isinstance(verdict, tuple):
                return self.plain(verdict[0], verdict[1], Content_Type="application/xml")
            if key == "" and self.command == "HEAD":
                return self.plain(200)
            return self.listing(o, query) if key == "" else self.object(o, key)
        except No as no:
            return self.refuse(no)
        except (BrokenPipeError, ConnectionResetError):
            return self.cut()

    def refuse(self, no):
        inner = "".join(f"<{k}>{escape(v)}</{k}>" for k, v in no.more.items())
        text = (f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{no.code}</Code><Message>{escape(no.message)}</Message>'
                f"{inner}<RequestId>4442587FB7D0A2F9</RequestId></Error>").encode()
        with self.server.origin.lock:
            self.server.origin.noes.append(no.code)
        self.plain(no.status, b"" if self.command == "HEAD" else text, Content_Type="application/xml", **no.fields)

    # --- the signature, from what came over the wire ---

    def judge(self, o, target):
        said = self.headers.get("Authorization")
        if said is None:
            if o.anonymous:
                return
            raise No(403, "AccessDenied", "Access Denied")
        found = AUTHORIZATION.fullmatch(said)
        if not found:
            raise No(400, "AuthorizationHeaderMalformed", "The authorization header is malformed.")
        access, day, region, names, theirs = found.groups()
        if access != o.access:
            raise No(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        if region != o.region:
            raise No(400, "AuthorizationHeaderMalformed",
                     f"The authorization header is malformed; the region '{region}' is wrong; expecting '{o.region}'", Region=o.region)
        names = names.split(";")
        must = {"host", *(n.lower() for n in self.headers if n.lower().startswith("x-amz-"))}
        payload = self.headers.get("x-amz-content-sha256")
        date = self.headers.get("x-amz-date", "")
        if names != sorted(names) or not must <= set(names) or payload not in ("UNSIGNED-PAYLOAD", hashlib.sha256().hexdigest()):
            raise No(403, "AccessDenied", "There were headers present in the request which were not signed")
        canonical = "\n".join([self.command, quoted(urllib.parse.unquote_to_bytes(target.path), "-._~/"),
                               canonical_query(target.query), *(f"{n}:{self.headers.get(n).strip()}" for n in names), "",
                               ";".join(names), payload])
        text = "\n".join(["AWS4-HMAC-SHA256", date, f"{day}/{region}/s3/aws4_request", hashlib.sha256(canonical.encode()).hexdigest()])
        if not date.startswith(day) or not hmac.compare_digest(signature(o.secret, day, region, text), theirs):
            raise No(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
        when = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc).timestamp()
        if abs(when - (time.time() + o.skew)) > 900:
            raise No(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
        if self.headers.get("x-amz-security-token") != o.token:
            raise No(400, "ExpiredToken" if o.expired else "InvalidToken", "The provided token has expired.")

    def key_of(self, o, target):
        """Bytes of the key as latin-1; "" is the bucket itself."""
        path = urllib.parse.unquote_to_bytes(target.path).decode("latin-1")[1:]
        if not (self.headers.get("Host") or "").startswith(o.bucket + "."):
            bucket, _, path = path.partition("/")
            if bucket != o.bucket:
                raise No(404, "NoSuchBucket", "The specified bucket does not exist")
        return path

    # --- answers ---

    def listing(self, o, query):
        if query.get("list-type") != "2" or query.get("encoding-type") != "url":
            raise No(400, "InvalidArgument", "only ListObjectsV2 here")
        prefix = query.get("prefix", "").encode().decode("latin-1")
        after = base64.b64decode(query["continuation-token"]).decode("latin-1") if "continuation-token" in query else ""
        with o.lock:
            o.lists.append(after)
            keys = sorted(k for k in o.objects if k.startswith(prefix) and k > after)
            page, more = keys[:o.page_size], len(keys) > o.page_size
            rows = [o.row(k) for k in page]
        token = f"<NextContinuationToken>{base64.b64encode(page[-1].encode('latin-1')).decode()}</NextContinuationToken>" if more else ""
        text = (f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                f"<Name>{o.bucket}</Name><Prefix>{quoted(prefix.encode('latin-1'))}</Prefix><KeyCount>{len(page)}</KeyCount>"
                f"<MaxKeys>1000</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(rows)}"
                "<EncodingType>url</EncodingType></ListBucketResult>").encode()
        return self.plain(200, text, Content_Type="application/xml")

    def object(self, o, key):
        with o.lock:
            data, mtime, fields, etag = o.objects.get(key, (None, 0, {}, ""))
        if data is None:
            raise No(404, "NoSuchKey", "The specified key does not exist.")
        fields = {"ETag": etag, "Last_Modified": email.utils.formatdate(int(mtime), usegmt=True), "Accept_Ranges": "bytes", **fields}
        if self.headers.get("x-amz-checksum-mode") != "ENABLED":
            fields = {n: v for n, v in fields.items() if not n.startswith("x_amz_checksum")}
        if self.headers.get("If-Match") not in (None, etag) and not o.ignores_if_match:
            raise No(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        if self.headers.get("If-None-Match") == etag:
            return self.plain(304, **fields)
        first, last, status = 0, len(data) - 1, 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            first, last, status = int(wanted[1]), min(int(wanted[2] or last), last), 206
            if first >= len(data):
                raise No(416, "InvalidRange", "The requested range is not satisfiable")
            fields["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
            fields.pop("x_amz_checksum_sha256", None)
        with o.lock:
            o.sent[key] = o.sent.get(key, 0) + 1
        self.send_response_only(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        for at in range(first, last + 1 if self.command == "GET" else 0, 65536):
            if o.midway is not None and o.midway(key, at) == "cut":
                return self.cut()
            part = data[at:min(at + 65536, last + 1)]
            self.wfile.write(part)
            with o.lock:
                o.bytes += len(part)
        return None


class Bucket:
    """objects: key -> bytes. disturb(key, query) before an answer, key "" for a list: "cut", a No, (status, body), or None.
    midway(key, at) before each 64 KiB: "cut" or None."""

    def __init__(self, objects=None):
        self.lock = threading.Lock()
        self.objects = {}
        self.bucket, self.access, self.secret, self.region = BUCKET, ACCESS, SECRET, REGION
        self.token = None
        self.anonymous = self.expired = self.ignores_if_match = False
        self.skew, self.page_size = 0, 1000
        self.disturb = self.midway = None
        self.forget()
        for key, data in (objects or {}).items():
            self.put(key, data)
        self.server = serving.Server(("127.0.0.1", 0), Handler)
        self.server.origin = self
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        serving.run(self.server)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        serving.stop(self.server)

    def put(self, key, data, mtime=BORN, **fields):
        data = data if isinstance(data, bytes) else data.encode()
        with self.lock:
            self.objects[key] = (data, mtime, fields, '"%s"' % hashlib.md5(data).hexdigest())

    def rm(self, *keys):
        with self.lock:
            for k in keys:
                del self.objects[k]

    def forget(self):
        with self.lock:
            self.requests, self.lists, self.noes, self.sent, self.bytes = [], [], [], {}, 0

    def tree(self, prefix=""):
        with self.lock:
            return {k[len(prefix):]: d for k, (d, *_) in self.objects.items() if k.startswith(prefix)}

    def row(self, key):
        data, mtime, _, etag = self.objects[key]
        date = datetime.datetime.fromtimestamp(mtime, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        shown = urllib.parse.quote_plus(key.encode("latin-1"), safe="/-._*")  # a blank is '+', as AWS has it
        return (f"<Contents><Key>{shown}</Key><LastModified>{date}</LastModified><ETag>{escape(etag, {chr(34): '&quot;'})}</ETag>"
                f"<Size>{len(data)}</Size><StorageClass>STANDARD</StorageClass></Contents>")


def checksum(data):
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
