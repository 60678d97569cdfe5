"""tls.py - an authority of our own, and the certificates that it, or nobody, has signed."""
import pathlib
import ssl
import subprocess

NAMES = "DNS:localhost,IP:127.0.0.1,IP:127.0.0.2"
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Authority:
    """ca.pem is what `ca_file` names; issue() and self_signed() return (certificate chain, key)."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.pem, self.key = self.folder / "ca.pem", self.folder / "ca.key"
        openssl("req", "-x509", *KEY, "-keyout", self.key, "-out", self.pem, "-days", 30, "-subj", "/CN=our authority")

    def issue(self, name, names=NAMES, days=30, by=None):
        """days < 0: expired. by: another certificate instead of the authority's own, whether it may sign or not."""
        signer, signer_key = by or (self.pem, self.key)
        chain, key, request = (self.folder / f"{name}.{x}" for x in ("pem", "key", "csr"))
        openssl("req", "-new", *KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}", "-addext",
                f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE")
        openssl("x509", "-req", "-in", request, "-CA", signer, "-CAkey", signer_key, "-days", days,
                "-copy_extensions", "copy", "-out", chain)
        if by:
            chain.write_bytes(chain.read_bytes() + signer.read_bytes())
        return chain, key

    def self_signed(self, name):
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        openssl("req", "-x509", *KEY, "-keyout", key, "-out", cert, "-days", 30, "-subj", f"/CN={name}", "-addext",
                f"subjectAltName={NAMES}")
        return cert, key


def server_context(pair, newest=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if newest:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = newest
    return context
