"""The examples that are no configuration of mirrord's: a batch script, cron's lines, a pod, Prometheus' rules."""
import os
import re
import shutil
import subprocess

import pytest

from harness.balancer import Balancer
from harness.bucket import Bucket
from harness.curl import curl
from harness.mirrord import BUILD, ROOT, SLOW, certificate, free_port, until

EXAMPLES = ROOT / "conf/examples"
SCRIPTS = ["train.sbatch", "certbot-hook"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_sound(name, client):
    text = (EXAMPLES / name).read_text()
    subprocess.run([client(text.splitlines()[0][2:].split("/")[-1]), "-n", EXAMPLES / name], check=True, timeout=60)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-S", "warning", "-e", "SC1091", EXAMPLES / name], check=True, timeout=60)


def test_certbots_hook_brings_a_renewed_certificate(mirrord, tmp_path):
    """As certbot calls it: copies of its files, then a reload; clients see the new certificate."""
    live, folder = tmp_path / "live", tmp_path / "tls"
    m = mirrord('repo "models" { protocol = "hosted" }\ninclude("tls.conf*")')
    port = free_port()
    (m.folder / "tls.conf").write_text(f'listen "127.0.0.1:{port}" {{ tls_certificate = "{folder}/cert.pem" tls_key = "{folder}/key.pem" }}\n')
    live.mkdir()
    for _ in range(2):
        cert, key = certificate(live)
        cert.rename(live / "fullchain.pem")
        key.rename(live / "privkey.pem")
        subprocess.run(["sh", EXAMPLES / "certbot-hook"], check=True, timeout=60, capture_output=True,
                       env=dict(os.environ, RENEWED_LINEAGE=str(live), MIRRORD_TLS=str(folder), MIRRORD_GROUP=str(os.getegid()),
                                            MIRRORD_RELOAD=f"{BUILD}/mirrorctl --socket {m.socket} config reload"))
        assert oct((folder / "key.pem").stat().st_mode & 0o777) == "0o640"
        subprocess.run(["curl", "-sSf", "--cacert", live / "fullchain.pem", f"https://localhost:{port}/healthz"], check=True, timeout=60,
                       capture_output=True)


def test_lines_of_cron():
    lines = [line for line in (EXAMPLES / "cron").read_text().splitlines() if line and line[0] != "#" and "=" not in line.split()[0]]
    assert lines
    for line in lines:
        fields = line.split()
        assert all(re.fullmatch(r"[\d*/,-]+", f) for f in fields[:5]) and re.fullmatch(r"[a-z]+", fields[5]), line


def test_the_pod_is_yaml():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    volumes = {v["name"] for v in pod["volumes"]}
    for c in pod["initContainers"] + pod["containers"]:
        assert {v["name"] for v in c["volumeMounts"]} <= volumes and all(isinstance(e["value"], str) for e in c["env"])


def test_the_pods_of_many_nodes_are_yaml():
    yaml = pytest.importorskip("yaml")
    service, group = yaml.safe_load_all((EXAMPLES / "kubernetes-nodes.yaml").read_text())
    pod = group["spec"]["template"]["spec"]
    volumes = {v["name"] for v in pod["volumes"]}
    assert service["spec"]["clusterIP"] == "None" and group["spec"]["serviceName"] == service["metadata"]["name"]
    for c in pod["containers"]:
        assert {v["name"] for v in c["volumeMounts"]} <= volumes
        assert f"--nodes {group['spec']['replicas']} " in c["args"][0]
        subprocess.run(["sh", "-n", "-c", c["args"][0]], check=True, timeout=60)


def test_a_nodes_file(tmp_path):
    """As it stands, and with every comment taken off a key."""
    text = (EXAMPLES / "preflight.conf").read_text()
    whole = tmp_path / "whole.conf"
    whole.write_text(re.sub(r"^( +)# (\w+ = )", r"\1\2", text, flags=re.M))
    assert "drain = yes" in whole.read_text() and not re.search(r"# drain", whole.read_text())
    for conf in (EXAMPLES / "preflight.conf", whole):
        done = subprocess.run([BUILD / "trainagent", "preflight", "-c", conf, "--only", "kernel"], capture_output=True, text=True, check=False,
                              timeout=240)
        assert done.returncode in (0, 1, 3) and done.stderr == "", done


def test_rules_for_prometheus(client):
    subprocess.run([client("promtool"), "check", "rules", EXAMPLES / "alerts.yml"], check=True, timeout=60)


def test_the_mirrors_of_a_cluster(tmp_path):
    text = (EXAMPLES / "cluster/mirrord.conf").read_text()
    keys = tmp_path / "bucket.keys"
    secret = tmp_path / "cluster.secret"
    for file in (keys, secret):
        file.write_text("access:secret\n")
        file.chmod(0o600)
    conf = tmp_path / "mirrord.conf"
    for old, new in (("/etc/mirrord/bucket.keys", keys), ("/etc/mirrord/cluster.secret", secret), ("/var/lib/mirrord", tmp_path / "state")):
        text = text.replace(old, str(new))
    conf.write_text(text)
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False, timeout=120 * SLOW)
    assert done.returncode == 0 and "warning" not in done.stderr, done


def test_the_mirrors_of_a_cluster_on_kubernetes(tmp_path):
    yaml = pytest.importorskip("yaml")
    config, mirrors, _, _, group = yaml.safe_load_all((EXAMPLES / "cluster/statefulset.yaml").read_text())
    pod = group["spec"]["template"]["spec"]
    volumes = {v["name"] for v in pod["volumes"]} | {c["metadata"]["name"] for c in group["spec"]["volumeClaimTemplates"]}
    assert mirrors["spec"]["clusterIP"] == "None" and group["spec"]["serviceName"] == mirrors["metadata"]["name"]
    for c in pod["initContainers"] + pod["containers"]:
        assert {v["name"] for v in c["volumeMounts"]} <= volumes
    prepare = pod["initContainers"][0]["command"][2].replace("$(POD)", "mirror-0")  # as the kubelet does
    for path in ("config", "secret", "etc/mirrord", "run/mirror"):
        (tmp_path / path).mkdir(parents=True)
        prepare = re.sub(f"(?<![\\w/])/{path}(?![\\w])", f"{tmp_path}/{path}", prepare)
    text = config["data"]["mirrord.conf"].replace("/run/mirror", f"{tmp_path}/run/mirror").replace("/var/lib/mirrord", f"{tmp_path}/state")
    (tmp_path / "config/mirrord.conf").write_text(text)
    for name in ("bucket.keys", "cluster.secret"):
        (tmp_path / "secret" / name).write_text("access:secret\n")
    subprocess.run(["sh", "-c", prepare], check=True, timeout=60)
    conf = tmp_path / "etc/mirrord/mirrord.conf"
    assert 'address = "http://mirror-0.mirrors:8080"' in conf.read_text()
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False, timeout=120 * SLOW)
    assert done.returncode == 0 and "warning" not in done.stderr, done


@pytest.fixture
def balancer(client, tmp_path):
    """balancer(ports) is the example before mirrors on these ports, and its own."""
    with Balancer(client("haproxy"), tmp_path) as b:
        yield b.start


def test_a_balancers_configuration(client, tmp_path):
    """As it stands, but for the certificate."""
    cert, key = certificate(tmp_path)
    pem, conf = tmp_path / "mirror.pem", tmp_path / "haproxy.cfg"
    pem.write_text(cert.read_text() + key.read_text())
    conf.write_text((EXAMPLES / "cluster/haproxy.cfg").read_text().replace("/etc/haproxy/mirror.pem", str(pem)))
    done = subprocess.run([client("haproxy"), "-c", "-f", conf], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and "[WARNING]" not in done.stderr and "[ALERT]" not in done.stderr, done


def test_a_balancer_before_a_cluster(balancer, mirrord, tmp_path):
    """Each path that is read has its mirror, uploads go to any, and one mirror is enough."""
    with Bucket() as bucket:
        text = f'''repo "models" {{ protocol = "hosted" }} trusted_proxies = {{"127.0.0.1"}}
            cluster "{bucket.url}" {{
              endpoint = "{bucket.endpoint}" region = "eu-test-1" authorization = "file:{bucket.keys_file(tmp_path)}" poll = "50ms" }}'''
        nodes = [mirrord(text) for _ in range(2)]
        port, cert = balancer([m.port for m in nodes])
        token = nodes[0].token("ci", "publish:models/*")

        def ask(path, **kw):
            return curl(f"https://127.0.0.1:{port}{path}", wire="h2", cacert=cert, limit_s=120 * SLOW, **kw)
        until(lambda: ask("/readyz").status == 200)
        paths = [f"/models/me/set/{i}" for i in range(20)]
        for path in paths:
            until(lambda p=path: ask(p, method="PUT", data=p.encode(), headers={"Authorization": f"Bearer {token}"}).status == 201)
        for path in paths * 2:
            until(lambda p=path: ask(p).body == p.encode())
        took = [{e["path"] for e in m.answered("/models/me/set/", method="GET")} for m in nodes]
        # A machine so busy that one is silent for a second has its paths read from the other, as it should be; the balancer says so.
        assert took[0] and took[1] and (not took[0] & took[1] or " is DOWN" in (tmp_path / "haproxy.log").read_text()), took
        puts = [m.access_log.read_text().count('"PUT"') for m in nodes]
        assert min(puts) > 0 and sum(puts) >= len(paths), puts
        nodes[1].stop()
        for path in paths:
            until(lambda p=path: ask(p).body == p.encode())
        until(lambda: ask("/models/me/set/last", method="PUT", data=b"1", headers={"Authorization": f"Bearer {token}"}).status == 201)
