"""The examples that are no configuration of mirrord's: a batch script, cron's lines, a pod, Prometheus' rules."""
import os
import re
import shutil
import subprocess

import pytest

from harness.mirrord import BUILD, ROOT, certificate, free_port

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
