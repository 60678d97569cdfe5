"""Notices of preemption as clouds give them, by HTTP: trainagent asks, the ranks write a checkpoint and end with 75."""
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness import serving
from harness.mirrord import BUILD, SLOW, until

# Ends with 75 when it is told to stop, as the trainer does; notes each start.
COMMAND = ["sh", "-c", 'trap "exit 75" TERM; echo >>"$0"; while :; do sleep 0.1; done']


class Metadata(serving.Server):
    """A metadata service: its answer, (status, text) or a function of the handler, to each path; what was asked."""

    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked, self.over = answers, [], threading.Event()
        serving.run(self)

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def close(self):
        self.over.set()
        serving.stop(self)


class Handler(serving.Handler):
    def do_GET(self):
        self.server.asked.append(f"{self.command} {self.path}")
        answer = self.server.answers(self)
        if answer is None:
            return
        status, text = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(text.encode())

    do_PUT = do_GET


@pytest.fixture
def metadata():
    servers = []

    def start(answers):
        servers.append(Metadata(answers))
        return servers[-1]
    yield start
    for s in servers:
        s.close()


def launch(url, *command, restarts=3):
    return subprocess.Popen([BUILD / "trainagent", "launch", "--restarts", str(restarts), "--preempt-url", url, "--", *map(str, command)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, http_proxy="http://127.0.0.1:9", OMP_NUM_THREADS="1"))


def ended(started):
    out, err = started.communicate(timeout=240 * SLOW)
    return started.returncode, out + err


def aws(notice):
    """Amazon's, of the kind that wants a token: nothing is there until there is a notice."""
    def answer(h):
        if h.path == "/latest/api/token":
            return (200, "t0k/en==") if h.command == "PUT" and h.headers["X-aws-ec2-metadata-token-ttl-seconds"] else (400, "")
        if h.headers["X-aws-ec2-metadata-token"] != "t0k/en==":
            return 401, ""
        return (200, '{"action": "terminate", "time": "2026-11-26T08:22:00Z"}') if notice.is_set() else (404, "")
    return answer


def old_aws(notice):
    return lambda h: (200, '{"action":"stop","time":"2026-11-26T08:22:00Z"}') if notice.is_set() else (404, "not found")


def gcp(notice):
    return lambda h: (403, "") if h.headers["Metadata-Flavor"] != "Google" else (200, "TRUE" if notice.is_set() else "FALSE")


def azure(notice):
    def answer(h):
        if h.headers["Metadata"] != "true":
            return 400, "bad request"
        events = '{"EventId":"1","EventType":"Freeze","EventStatus":"Scheduled"}'
        return 200, '{"DocumentIncarnation":1,"Events":[%s]}' % (
            events + ',{"EventId":"2","EventType":"Preempt","EventStatus":"Scheduled"}' if notice.is_set() else events)
    return answer


@pytest.mark.parametrize("cloud, path", [(aws, "/latest/meta-data/spot/instance-action"), (old_aws, "/latest/meta-data/spot/instance-action"),
                                         (gcp, "/computeMetadata/v1/instance/preempted"),
                                         (azure, "/metadata/scheduledevents?api-version=2020-07-01")])
def test_a_notice_stops_the_ranks(metadata, tmp_path, cloud, path):
    notice = threading.Event()
    server = metadata(cloud(notice))
    started = launch(server.url(path), *COMMAND, tmp_path / "starts")
    until(lambda: started.poll() is not None or f"GET {path}" in server.asked and (tmp_path / "starts").exists())
    notice.set()
    rc, said = ended(started)
    assert rc == 75 and "launch.preempted" in said, said
    assert (tmp_path / "starts").read_text() == "\n"  # 75 starts again, but not on a machine that goes away


@pytest.mark.parametrize("name", [(200, "train_3"), (404, "")])
def test_azure_names_the_machines_of_an_event(metadata, tmp_path, name):
    """The list is the whole scale set's. An event of another machine is none here, but for a machine whose own name is not known."""
    first = threading.Event()

    def answer(h):
        if h.path.startswith("/metadata/instance/compute/name?"):
            first.set()
            return name if h.headers["Metadata"] == "true" else (400, "")
        events = ['{"EventType":"Preempt","Resources":["train_2","TRAIN_33"]}']
        if ours.is_set():
            events.append('{"EventType":"Preempt","Resources":["other","TRAIN_3"]}')
        return 200, '{"DocumentIncarnation":1,"Events":[%s]}' % ",".join(events)
    ours = threading.Event()
    server = metadata(answer)
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    started = launch(server.url(path), *COMMAND, tmp_path / "starts")
    until(lambda: started.poll() is not None or (server.asked.count(f"GET {path}") >= 2 and (tmp_path / "starts").exists()))
    if name[0] == 200:
        assert first.is_set() and started.poll() is None, ended(started)
        ours.set()
    rc, said = ended(started)
    assert rc in (75, 143) and "launch.preempted" in said, said


# Takes its time on SIGTERM, until "$0.go" is there.
SLOW_TO_END = ["sh", "-c", 'trap "touch \\"$0.told\\"; until [ -e \\"$0.go\\" ]; do sleep 0.05; done; exit 75" TERM; touch "$0"; while :; do sleep 0.05; done']


def sigterm(started):
    """Sends it, and waits until it was read."""
    started.send_signal(signal.SIGTERM)
    bit = 1 << (signal.SIGTERM - 1)
    until(lambda: started.poll() is not None or
          not int(re.search(r"^ShdPnd:\s*(\w+)$", Path(f"/proc/{started.pid}/status").read_text(), re.M)[1], 16) & bit)


def asker_is_gone(started):
    """The process that asks ends when it has sent its signal."""
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    return any(Path(f"/proc/{c}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z" for c in children)


@pytest.mark.parametrize("notice_first", [True, False])
def test_a_notice_and_a_sigterm_are_one_request_to_end(metadata, tmp_path, notice_first):
    """A node that is drained because of the notice: neither kills the ranks while they write what the other asked for."""
    notice = threading.Event()
    server = metadata(gcp(notice))
    rank = tmp_path / "rank"
    started = launch(server.url("/preempted"), *SLOW_TO_END, rank)
    until(lambda: started.poll() is not None or rank.exists())
    if notice_first:
        notice.set()
        until(lambda: started.poll() is not None or (tmp_path / "rank.told").exists() and asker_is_gone(started))
        sigterm(started)
    else:
        sigterm(started)
        notice.set()
        until(lambda: started.poll() is not None or asker_is_gone(started))
    (tmp_path / "rank.go").touch()
    rc, said = ended(started)
    assert rc == 75 and "launch.preempted" in said, said


def test_the_second_sigterm_kills(metadata, tmp_path):
    server = metadata(lambda h: (404, ""))
    started = launch(server.url("/notice"), *SLOW_TO_END, tmp_path / "rank")
    until(lambda: started.poll() is not None or (tmp_path / "rank").exists())
    sigterm(started)
    sigterm(started)
    assert ended(started)[0] == 137


@pytest.mark.parametrize("answer", [(200, "<html>who are you?</html>"), (200, "NONE"), (200, ""), (500, "TRUE"), (302, "TRUE"),
                                    (200, '{"action": 7}'), (200, '{"Events": {}}'), (200, '{"Events": [7, {"EventType": 7}]}'),
                                    (200, "TRUE" + " " * 100000)])
def test_what_is_no_notice(metadata, tmp_path, answer):
    server = metadata(lambda h: answer)
    started = launch(server.url("/notice"), "sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', tmp_path / "done")
    until(lambda: len(server.asked) >= 2 or started.poll() is not None)
    (tmp_path / "done").touch()
    rc, said = ended(started)
    assert rc == 0 and "preempted" not in said and "/elsewhere" not in "".join(server.asked), said


def hang(h):
    h.server.over.wait(240)


def trickle(h):
    h.send_response(200)
    h.end_headers()
    while not h.server.over.is_set():
        try:
            h.wfile.write(b"T")
        except OSError:
            return
        time.sleep(0.2)


@pytest.mark.parametrize("first", [hang, trickle])
def test_a_service_that_does_not_answer_holds_nothing_up(metadata, tmp_path, first):
    """The question ends after 5 s and is asked again; the notice is taken, and a command that ends is not waited on."""
    notice = threading.Event()
    server = metadata(lambda h: (200, "TRUE") if notice.is_set() else first(h))
    url = server.url("/notice")
    started = launch(url, "sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', tmp_path / "done")
    until(lambda: server.asked or started.poll() is not None)
    (tmp_path / "done").touch()
    assert ended(started)[0] == 0
    started = launch(url, *COMMAND, tmp_path / "starts")
    until(lambda: len(server.asked) >= 2 or started.poll() is not None)
    until(lambda: (tmp_path / "starts").exists())
    notice.set()
    assert ended(started)[0] == 75


def test_nobody_there(tmp_path):
    rc, said = ended(launch("http://127.0.0.1:9/notice", "true"))
    assert rc == 0, said
    for bad in ("ftp://x/", "notice", "http://"):
        rc, said = ended(launch(bad, "touch", tmp_path / "ran"))
        assert rc == 64 and "--preempt-url" in said and not (tmp_path / "ran").exists(), said


def test_the_trainer_writes_a_checkpoint(metadata, tmp_path):
    notice = threading.Event()
    server = metadata(gcp(notice))
    text, data, out = tmp_path / "text", tmp_path / "data.bin", tmp_path / "out"
    text.write_bytes(bytes(i * i % 251 for i in range(5000)))
    subprocess.run([BUILD / "trainer", "tokenize", "--out", data, text], check=True, capture_output=True)
    (tmp_path / "shape.json").write_text('{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}')
    started = launch(server.url("/preempted"), BUILD / "trainer", "train", "--config", tmp_path / "shape.json", "--data", data, "--out", out,
                     "--device", "cpu", "--steps", 1000000, "--log-every", 0)
    until(lambda: started.poll() is not None or (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size > 0)
    notice.set()
    rc, said = ended(started)
    assert rc == 75 and "stopped by a signal after step " in said, said
    step = int(said.split("a signal after step ")[1].split(";")[0])
    assert (out / f"checkpoint-{step}").is_dir()
