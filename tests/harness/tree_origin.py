"""tree_origin.py - a web server with a tree of files in memory and folder pages as nginx, Apache, lighttpd, Python or a JSON
index write them; and the disturbances that a mirror has to live with, to order."""
import email.utils
import hashlib
import html
import json
import threading
import time
import urllib.parse

from harness import serving

STYLES = ("nginx", "apache", "lighttpd", "python", "json")
BORN = 1700000000


class Handler(serving.Handler):
    def plain(self, status, body=b"", **fields):
        self.send_response_only(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.plain(200)

    def do_GET(self):
        o = self.server.origin
        raw = urllib.parse.urlsplit(self.path).path
        path = urllib.parse.unquote_to_bytes(raw).lstrip(b"/").decode("latin-1")
        with o.lock:
            o.requests.append(path)
        try:
            if o.disturb is not None:
                verdict = o.disturb(path)
                if verdict == "cut":
                    return self.cut()
                if isinstance(verdict, int):
                    return self.plain(verdict)
                if isinstance(verdict, bytes):
                    return self.plain(200, verdict, Content_Type="text/html")
            if path == "" or path.endswith("/"):
                return self.folder(o, path)
            return self.file(o, path)
        except (BrokenPipeError, ConnectionResetError):
            return self.cut()

    def folder(self, o, path):
        names = o.children(path)
        if not names and path:
            return self.plain(404)
        if o.style == "json":
            return self.plain(200, o.page(path, names), Content_Type="application/json")
        return self.plain(200, o.page(path, names), Content_Type="text/html; charset=utf-8")

    def file(self, o, path):
        with o.lock:
            data, mtime = o.files.get(path, (None, 0))
        if data is None:
            return self.plain(404)
        etag = '"%s"' % hashlib.sha1(data).hexdigest()
        date = email.utils.formatdate(mtime, usegmt=True)
        fields = {"Last_Modified": date}
        if o.etags:
            fields["ETag"] = etag
        seen, since = self.headers.get("If-None-Match"), self.headers.get("If-Modified-Since")
        if seen == etag if seen and o.etags else since == date:
            with o.lock:
                o.unchanged.append(path)
            return self.plain(304, **fields)
        wanted, first = self.headers.get("Range"), 0
        if wanted and self.headers.get("If-Range") in (None, etag if o.etags else None):
            low, _, high = wanted.removeprefix("bytes=").partition("-")
            first, last = int(low), min(int(high or len(data)), len(data) - 1)
            if first >= len(data):
                return self.plain(416)
            fields["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
        body = data[first:]
        with o.lock:
            o.sent[path] = o.sent.get(path, 0) + 1
        self.send_response_only(206 if "Content_Range" in fields else 200)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for at in range(0, len(body), 65536):
            if o.midway is not None and o.midway(path, first + at) == "cut":
                return self.cut()
            with o.lock:  # first: what a test has seen arrive is counted
                o.bytes += len(body[at:at + 65536])
            self.wfile.write(body[at:at + 65536])
        return None


class TreeOrigin:
    """files: path -> (bytes, mtime). disturb(path) before an answer: "cut", a status, a page's bytes, or None. midway(path, at)
    before each 64 KiB: "cut" or None."""

    def __init__(self, files=None, style="nginx", etags=True, port=0):
        self.lock = threading.Lock()
        self.files = {}
        self.style, self.etags = style, etags
        self.disturb = self.midway = None
        self.forget()
        for path, data in (files or {}).items():
            self.put(path, data)
        self.server = serving.Server(("127.0.0.1", port), Handler)
        self.server.origin = self
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        serving.run(self.server)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.close()

    def close(self):
        serving.stop(self.server)

    def put(self, path, data, mtime=BORN):
        with self.lock:
            self.files[path] = (data if isinstance(data, bytes) else data.encode(), mtime)

    def rm(self, *paths):
        with self.lock:
            for p in paths:
                del self.files[p]

    def forget(self):
        with self.lock:
            self.requests, self.unchanged, self.sent, self.bytes = [], [], {}, 0

    def tree(self):
        with self.lock:
            return {p: d for p, (d, _) in self.files.items()}

    def children(self, path):
        out = {}
        with self.lock:
            for p, (data, mtime) in self.files.items():
                if p.startswith(path):
                    name, slash, _ = p[len(path):].partition("/")
                    out[name + slash] = (None, BORN) if slash else (len(data), mtime)
        return dict(sorted(out.items()))

    def page(self, path, names):
        def quoted(n):
            return urllib.parse.quote(n.encode("latin-1"), safe="/")

        def label(n):
            return html.escape(n.encode("latin-1").decode("utf-8", "replace"))
        if self.style == "json":
            return json.dumps([{"name": n.rstrip("/"), "type": "directory" if n.endswith("/") else "file",
                                "mtime": email.utils.formatdate(t, usegmt=True), **({} if s is None else {"size": s})}
                               for n, (s, t) in names.items()]).encode()
        rows = [f"<html><head><title>Index of /</title></head><body><h1>Index of /{html.escape(path)}</h1>"]
        if self.style == "nginx":
            rows.append('<hr><pre><a href="../">../</a>')
            for n, (s, t) in names.items():
                shown = label(n if len(n) < 50 else n[:47] + "..>")
                date = time.strftime("%d-%b-%Y %H:%M", time.gmtime(t))
                rows.append(f'<a href="{quoted(n)}">{shown}</a>{" " * max(1, 51 - len(n))}{date} {"-" if s is None else s:>19}')
            rows.append("</pre><hr>")
        elif self.style == "apache":
            rows.append('<table><tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>'
                        '<tr><td><a href="/">Parent Directory</a></td><td>&nbsp;</td></tr>')
            for n, (s, t) in names.items():
                size = "  - " if s is None else str(s) if s < 1000 else "%.1fK" % (s / 1024)
                date = time.strftime("%Y-%m-%d %H:%M", time.gmtime(t))
                rows.append(f'<tr><td valign="top"><img src="/icons/x.gif" alt="[ ]"></td><td><a href="{quoted(n)}">{label(n)}</a></td>'
                            f'<td align="right">{date}  </td><td align="right">{size}</td><td>&nbsp;</td></tr>')
            rows.append("</table>")
        elif self.style == "lighttpd":
            rows.append('<table><tbody><tr class="d"><td class="n"><a href="../">..</a>/</td><td class="m">&nbsp;</td></tr>')
            for n, (s, t) in names.items():
                date = time.strftime("%Y-%b-%d %H:%M:%S", time.gmtime(t))
                rows.append(f'<tr><td class="n"><a href="{quoted(n)}">{label(n)}</a></td><td class="m">{date}</td>'
                            f'<td class="s">{"- &nbsp;" if s is None else "%.1fK" % (s / 1024)}</td></tr>')
            rows.append("</tbody></table>")
        else:
            rows.append("<ul>")
            rows += [f'<li><a href="{quoted(n)}">{label(n)}</a></li>' for n in names]
            rows.append("</ul>")
        rows.append("</body></html>")
        return "\n".join(rows).encode()
