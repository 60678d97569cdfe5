"""peers.py - the servers of the bench: nginx (static, and as a cache), h2o, mirrord, and the origin behind the caches.

Each measured server has one core and one worker; recipes as in docs/benchmarks.md. A server knows its ports by wire
(h1, h2, h2c), its path to a file of the bench, and the CPU time and memory of all its processes.
"""
import os
import pathlib
import signal
import socket
import subprocess
import time

from harness.mirrord import Mirrord

SERVER_CORE, CLIENT_CORE = "0", "1"

NGINX = """
worker_processes 1; daemon off; pid {run}/{name}.pid; error_log {run}/{name}.err crit; {user} worker_rlimit_nofile 40000;
events {{ worker_connections 16384; use epoll; }}
http {{ sendfile on; tcp_nopush {nopush}; tcp_nodelay on; sendfile_max_chunk 2m;
  open_file_cache max=4000 inactive=60s; open_file_cache_valid 60s; open_file_cache_min_uses 1;
  keepalive_requests 100000000; keepalive_timeout 600s; http2_max_concurrent_streams 256;
  client_body_temp_path {run}/t1; proxy_temp_path {run}/t2; fastcgi_temp_path {run}/t3; uwsgi_temp_path {run}/t4;
  scgi_temp_path {run}/t5; ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3 TLSv1.2;
  ssl_session_cache off; ssl_session_tickets off;
  {body}
}}
"""
LISTEN = """listen 127.0.0.1:{h1} backlog=4096; listen 127.0.0.1:{h2} ssl http2 backlog=4096;
    listen 127.0.0.1:{h2c} http2 backlog=4096;"""
STATIC = "access_log off; server {{ " + LISTEN + " root {www}; }}"
CACHE = """access_log off;
  proxy_cache_path {run}/cache levels=1:2 keys_zone=z:16m max_size=40g inactive=1d use_temp_path=off;
  upstream o {{ server 127.0.0.1:{origin}; keepalive 32; }}
  server {{ """ + LISTEN + """
    location / {{ proxy_pass http://o; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_cache z;
      proxy_cache_valid 200 206 1d; proxy_cache_lock on; }} }}"""
# The same facts as our line has, where nginx knows them. It writes each line as the answer ends, unless told to buffer.
LOGGED = r"""log_format facts escape=json '{{"ts":"$time_iso8601","id":"$request_id","client":"$remote_addr",'
    '"principal":"$remote_user","method":"$request_method","host":"$http_host","path":"$uri","proto":"$server_protocol",'
    '"tls":"$https","status":$status,"bytes":$body_bytes_sent,"complete":"$request_completion","dur_ms":$request_time,'
    '"cache":"$upstream_cache_status","repo":"$server_name","range":"$http_range","ua":"$http_user_agent"}}';
  server {{ listen 127.0.0.1:{off} backlog=4096; root {www}; access_log off; }}
  server {{ listen 127.0.0.1:{json} backlog=4096; root {www}; access_log {run}/json.log facts buffer=64k flush=1s; }}
  server {{ listen 127.0.0.1:{combined} backlog=4096; root {www}; access_log {run}/combined.log combined buffer=64k flush=1s; }}
  server {{ listen 127.0.0.1:{each} backlog=4096; root {www}; access_log {run}/each.log facts; }}"""
# What a row of the table compares: ours, and nginx's port. Without a buffer nginx is as its users have it, and so is ours on stderr.
LOGS = {"off": ("none", "json", "off"), "json, a file": ("access.log", "json", "json"),
        "combined, a file": ("access.log", "combined", "combined"), "json, as installed (stderr; unbuffered)": ("stderr", "json", "each")}
ORIGIN = """log_format o '$request_uri $bytes_sent'; access_log {run}/origin.log o;
  server {{ listen 127.0.0.1:{h1} backlog=4096; root {www};
    location /slow/ {{ alias {www}/; limit_rate 200000000; sendfile_max_chunk 256k; }}
    location /slow40/ {{ alias {www}/; limit_rate 40000000; sendfile_max_chunk 256k; }} }}"""
H2O = """
num-threads: 1
max-connections: 16384
{user}
http1-request-timeout: 600
http2-idle-timeout: 600
http2-max-concurrent-requests-per-connection: 256
listen: {{ host: 127.0.0.1, port: {h1} }}
listen: {{ host: 127.0.0.1, port: {h2}, ssl: {{ certificate-file: {cert}, key-file: {key}, minimum-version: TLSv1.2 }} }}
hosts: {{ default: {{ paths: {{ /: {{ file.dir: {www} }} }} }} }}
"""


class Server:
    """A process (and its children) pinned to one core."""

    def __init__(self, name, command, ports, core=SERVER_CORE, prefix=""):
        self.name, self.ports, self.prefix = name, ports, prefix
        self.child = subprocess.Popen(["taskset", "-c", core, *map(str, command)], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for port in ports.values():
            wait_port(port, self.child)

    def pids(self):
        """The process and its descendants; nginx's work is done by a child."""
        found = [self.child.pid]
        for pid in found:
            for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(p) for p in children.read_text().split()]
        return found

    def cpu_s(self):
        """Time on a core, in seconds, of all threads that still live."""
        total = 0
        for pid in self.pids():
            for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
                total += int(stat.read_text().split()[0])
        return total / 1e9

    def memory_bytes(self):
        total = 0
        for pid in self.pids():
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total

    def path(self, file):
        return f"{self.prefix}/{file}"

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class MirrordServer(Server):
    """Our own: one loop thread, and the repo that it is measured with."""

    def __init__(self, folder, cert, build, repo, prefix):  # pylint: disable=super-init-not-called
        self.name, self.prefix = "mirrord", prefix
        self.m = Mirrord(f'threads = 1\nlog_level = "warn"\nstorage {{ quota = "20g" reserve = "16m" }}\n{repo}',
                         cert=cert, folder=folder, build=build)
        self.m.access_log = "none"
        self.m.command = ["taskset", "-c", SERVER_CORE]
        self.m.start()
        self.child = self.m.child
        self.ports = {"h1": self.m.port, "h2c": self.m.port, "h2": self.m.tls_port}

    def set_log(self, name):
        """One of LOGS, from now on."""
        path, form, _ = LOGS[name]
        self.m.access_log = self.m.folder / path if path == "access.log" else path
        config, self.m.config = self.m.config, f'access_log_format = "{form}"\n{self.m.config}'
        self.m.reload()
        self.m.config = config

    def stop(self):
        self.m.stop()


class LoggedNginx(Server):
    """nginx with a port for each form of its access log."""

    def set_log(self, name):
        self.ports["h1"] = self.ports[LOGS[name][2]]


def wait_port(port, child):
    end = time.monotonic() + 20
    while time.monotonic() < end and child.poll() is None:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"bench: nothing listens on port {port}")


class Yard:
    """All of them, on fixed ports of our own namespace (or of loopback), below one folder."""

    def __init__(self, folder, www, cert, build):
        self.run, self.www, self.cert = pathlib.Path(folder, "run"), www, cert
        self.run.mkdir()
        self.servers = []
        self.origin = self.nginx("origin", ORIGIN, {"h1": 19000}, core=CLIENT_CORE)
        static = self.nginx("nginx", STATIC, {"h1": 18080, "h2": 18443, "h2c": 18081})
        # With tcp_nopush a cached 64 KiB object stalls 40 ms on loopback: its better setting is what we measure.
        cache = self.nginx("nginx-cache", CACHE, {"h1": 18180, "h2": 18543, "h2c": 18181}, nopush="off")
        logged = self.nginx("nginx-log", LOGGED, {"off": 18381, "json": 18382, "combined": 18383, "each": 18384}, kind=LoggedNginx)
        h2o = self.h2o({"h1": 18280, "h2": 18643})
        home = pathlib.Path(folder, "mirrord")
        home.mkdir()
        ours = MirrordServer(home, cert, build, f'repo "o" {{ protocol = "generic" origin = "http://127.0.0.1:'
                             f'{self.origin.ports["h1"]}/"\n    rule "." {{ class = immutable }} }}', "/o")
        self.servers.append(ours)
        self.measured = [ours, static, cache, h2o]
        self.caches = [ours, cache]
        self.logged = [ours, logged]

    def nginx(self, name, body, ports, core=SERVER_CORE, nopush="on", kind=Server):
        user = "user root;" if os.geteuid() == 0 else ""
        facts = dict(run=self.run, www=self.www, origin=19000, **ports)
        conf = self.run / f"{name}.conf"
        conf.write_text(NGINX.format(name=name, run=self.run, cert=self.cert[0], key=self.cert[1], user=user,
                                     nopush=nopush, body=body.format(**facts)))
        return self.keep(kind(name, ["nginx", "-p", self.run, "-c", conf], ports, core))

    def h2o(self, ports):
        conf = self.run / "h2o.conf"
        conf.write_text(H2O.format(www=self.www, cert=self.cert[0], key=self.cert[1],
                                   user="user: root" if os.geteuid() == 0 else "", **ports))
        server = self.keep(Server("h2o", ["h2o", "-c", conf], ports))
        server.ports = dict(ports, h2c=ports["h1"])
        return server

    def keep(self, server):
        self.servers.append(server)
        return server

    def origin_log(self):
        """(requests, bytes) that left the origin so far."""
        lines = (self.run / "origin.log").read_text().splitlines()
        return len(lines), sum(int(line.split()[1]) for line in lines)

    def stop(self):
        for server in reversed(self.servers):
            server.stop()
