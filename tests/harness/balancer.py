"""balancer.py - HAProxy with conf/examples/cluster/haproxy.cfg before mirrors on loopback."""
import subprocess

from harness.mirrord import ROOT, certificate, free_port

EXAMPLE = ROOT / "conf/examples/cluster/haproxy.cfg"


class Balancer:
    """In the foreground; it ends with the block."""

    def __init__(self, program, folder):
        self.program, self.folder, self.child = program, folder, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child:
            self.child.terminate()
            self.child.wait()

    def start(self, ports, plain=False):
        """(its port, its certificate). plain: without TLS."""
        cert, key = certificate(self.folder)
        pem, conf, port = self.folder / "mirror.pem", self.folder / "haproxy.cfg", free_port()
        pem.write_text(cert.read_text() + key.read_text())
        text = EXAMPLE.read_text()
        text = text.replace("bind :443", f"bind 127.0.0.1:{port}").replace("/etc/haproxy/mirror.pem", str(pem))
        if plain:
            text = text.replace(f" ssl crt {pem} alpn h2,http/1.1", "").replace("    http-request set-header X-Forwarded-Proto https\n", "")
        for number in (1, 2, 3):
            line = f"    server m{number} 192.0.2.1{number}:8080\n"
            assert text.count(line) == 2
            text = text.replace(line, line.replace(f"192.0.2.1{number}:8080", f"127.0.0.1:{ports[number - 1]}") if number <= len(ports) else "")
        conf.write_text(text)
        with open(self.folder / "haproxy.log", "wb") as log:
            self.child = subprocess.Popen([self.program, "-db", "-f", conf], stdout=log, stderr=log)
        return port, cert
