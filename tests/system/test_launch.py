"""trainagent launch and run: what is started again after a failure, how often, and on which machine it is not."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness.mirrord import BUILD, SANITIZERS, until

SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'
MPI = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")


class Agent:
    """trainagent in a folder of its own."""

    def __init__(self, folder):
        self.folder, self.children, self.err = folder, [], ""
        (folder / "node.conf").write_text('preflight { timeout = 60s only = {"memory"} }\n')  # not of the machine that tests
        self.env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(folder), **SANITIZERS, "TRAINAGENT_SHELF": str(folder / "shelf"),
                    "TRAINAGENT_STATE": str(folder / "state"), "TRAINAGENT_PREFLIGHT": str(folder / "node.conf"),
                    "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def start(self, *args, **env):
        child = subprocess.Popen([BUILD / "trainagent", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**self.env, **env}, cwd=self.folder, stdin=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def end(self, child, code):
        out, self.err = child.communicate(timeout=240)
        assert child.returncode == code, (child.returncode, out, self.err)
        return out

    def __call__(self, *args, code=0, **env):
        return self.end(self.start(*args, **env), code)

    def job(self, script, keys="restarts = 5", more=""):
        """A job that runs sh; {out} is the folder out."""
        path = self.folder / "job.conf"
        text = script.replace("\\", "\\\\").replace('"', '\\"').replace("{", "{{").replace("{{out}", "{out}")
        path.write_text(f'run {{ command = {{"sh", "-c", "{text}"}} ranks = 1 backoff = 1ms out = "{self.folder}/out" {keys} }}\n{more}\n')
        return path

    def tries(self):
        path = self.folder / "out/tries"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def agent(tmp_path):
    a = Agent(tmp_path)
    yield a
    for child in a.children:
        child.kill()
        child.communicate()


TRY = "echo x >>{out}/tries; n=$(wc -l <{out}/tries); "


def test_restarts_are_bounded(agent):
    agent("run", agent.job(TRY + "exit 75", "restarts = 3"), code=70)
    assert agent.tries() == 4
    assert "after 3 restarts without a newer checkpoint" in agent.err
    assert json.loads(agent("status", "--json"))["jobs"][0]["restarts"] == 3


def test_a_newer_checkpoint_is_progress(agent):
    """Two restarts are allowed; each third attempt has made a checkpoint before it fails."""
    agent("run", agent.job(TRY + "test $((n % 3)) = 0 && mkdir {out}/checkpoint-$n; test $n = 12 && exit 0; exit 75", "restarts = 3"))
    assert agent.tries() == 12


def test_half_a_checkpoint_is_none(agent):
    agent("run", agent.job(TRY + "mkdir {out}/checkpoint-$n.partial; exit 75", "restarts = 2"), code=70)
    assert agent.tries() == 3


def test_the_same_step_three_times_is_final(agent):
    """As the trainer writes it: a line a step, those after the checkpoint dropped at the next start."""
    agent("run", agent.job(TRY + """printf '{"step":%d,"loss":1}\\n' 1 2 3 >{out}/metrics.jsonl; exit 75""", "restarts = 100"), code=70)
    assert agent.tries() == 3
    assert "failed 3 times in a row after step 3" in agent.err
    shutil.rmtree(agent.folder / "out")
    agent("run", agent.job(TRY + """printf '{"step":%d,"loss":1}\\n' 1 $n >{out}/metrics.jsonl; test $n = 7 && exit 0; exit 75""", "restarts = 9"))
    assert agent.tries() == 7


def test_an_attempt_that_did_not_come_to_a_step_is_not_of_that_step(agent):
    agent("run", agent.job(TRY + """test $n = 1 && printf '{"step":3}\\n' >{out}/metrics.jsonl; test $n = 5 && exit 0; exit 75"""))
    assert agent.tries() == 5


@pytest.mark.parametrize("code", [1, 64, 65, 70, 73, 78])
def test_what_another_try_cannot_help_is_final(agent, code):
    agent("run", agent.job(TRY + f"exit {code}"), code=code)
    assert agent.tries() == 1


def test_a_signal_that_a_launcher_between_reports_is_a_signal(agent):
    """mpirun ends with 137 when a rank was killed, and so does a shell."""
    agent("run", agent.job(TRY + "test $n = 3 && exit 0; sh -c 'kill -9 $$'; exit $?"))
    assert agent.tries() == 3


@pytest.mark.parametrize("section", ["", "preflight { }"])
def test_a_sick_gpu_gets_no_restart(agent, section):
    """Also where the job asked for no preflight: a GPU with an uncorrected ECC error fails the next attempt as well."""
    fakes = BUILD / "fake"
    if not (fakes / "libnvidia-ml.so.1").exists():
        pytest.fail(f"{fakes} is not built: make test-programs")
    (agent.folder / "node.conf").write_text("preflight { timeout = 60s skip = {\"cuda\", \"bus\", \"shm\"} }\n")
    env = {"FAKE_NVML": "gpus=1;0.ecc=2", "LD_LIBRARY_PATH": str(fakes)}
    path = agent.job(TRY + "exit 75", more=section)
    agent("run", path, code=71, **env)
    assert "ecc: " in agent.err and "GPU 0" in agent.err
    assert agent.tries() == (0 if section else 1)
    if not section:
        agent("launch", "--restarts", 3, "--ranks", 1, "--", "sh", "-c", "echo x >>out/launched; exit 75", code=71, **env)
        assert (agent.folder / "out/launched").read_text() == "x\n"
        agent("run", path, code=70, FAKE_NVML="gpus=1", LD_LIBRARY_PATH=str(fakes))
        assert agent.tries() == 1 + 6


def test_launch_knows_progress_by_its_folder(agent):
    agent("launch", "--restarts", 1, "--checkpoints", "ckpt", "--", "sh", "-c",
          "n=$(ls -d ckpt/* 2>/dev/null | wc -l); test $n = 5 && exit 0; mkdir -p ckpt/checkpoint-$n; exit 75")
    agent("launch", "--restarts", 1, "--", "sh", "-c", "echo x >>n; exit 75", code=70)
    assert (agent.folder / "n").read_text() == "x\nx\n"


def test_without_restarts_the_code_is_the_commands(agent):
    """Whoever started the agent starts it again: 75 and a signal's code mean that it may."""
    agent("launch", "--", "sh", "-c", "exit 75", code=75)
    agent("launch", "--", "sh", "-c", "kill -9 $$", code=137)
    agent("run", agent.job(TRY + "exit 75", "restarts = 0"), code=75)
    assert agent.tries() == 1


def test_restarts_that_are_used_up_by_signals(agent):
    """A scheduler that starts 137 again would start such a job for ever."""
    agent("launch", "--restarts", 1, "--", "sh", "-c", "echo x >>n; kill -9 $$", code=70)
    assert (agent.folder / "n").read_text() == "x\nx\n"


# --- the trainer ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path):
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    subprocess.run([BUILD / "trainer", "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], check=True, capture_output=True)
    return tmp_path / "data.bin"


def train(folder, data, steps):
    return [BUILD / "trainer", "train", "--config", data.parent / "shape.json", "--data", data, "--out", folder, "--device", "cpu", "--steps",
            steps, "--batch", 2, "--save-every", 2, "--keep", 2, "--resume", "auto", "--deterministic"]


def weights(folder, step):
    return hashlib.sha256((folder / f"checkpoint-{step}/model.safetensors").read_bytes()).hexdigest()


@MPI
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_run_whose_rank_was_killed_equals_the_unbroken_one(agent, data, how):
    """Two ranks under mpirun, of which one is killed when the first checkpoint is there: all are started again from it."""
    steps = 60
    mpi = ["mpirun", "--oversubscribe", "-n", "2"]
    subprocess.run([*mpi, *map(str, train(agent.folder / "whole", data, steps))], env=agent.env, check=True, capture_output=True)
    out, hold = agent.folder / "broken", agent.folder / "hold"
    hold.write_text("0 on write checkpoint-8.")  # which it does not finish before it is killed, however late that is
    setup = f'export LD_PRELOAD={BUILD}/crash/failer.so FAIL_FILE={hold}; exec "$@"'
    child = agent.start("launch", "--ranks", 1, "--restarts", 3, "--checkpoints", out, "-v", "--", *mpi, "sh", "-c", setup, "sh",
                        *train(out, data, steps))

    def ranks():
        found = []
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                if str(out).encode() in (proc / "cmdline").read_bytes() and (proc / "comm").read_text() == "trainer\n":
                    found.append(int(proc.name))
            except OSError:
                pass
        return found
    until(lambda: list(out.glob("checkpoint-*")) and (child.poll() is not None or len(ranks()) == 2))
    for pid in ranks()[:1]:
        os.kill(pid, how)
    hold.unlink()
    agent.end(child, 0)
    assert "launch.again" in agent.err
    assert weights(out, steps) == weights(agent.folder / "whole", steps)


@MPI
def test_a_run_goes_on_with_fewer_ranks(agent, data):
    """As --elastic makes it: the checkpoint does not depend on the number of ranks, and the data go on where they were."""
    out = agent.folder / "out"
    subprocess.run(["mpirun", "--oversubscribe", "-n", "2", *map(str, train(out, data, 4))], env=agent.env, check=True, capture_output=True)
    subprocess.run([*map(str, train(out, data, 6))], env=agent.env, check=True, capture_output=True)
    state = json.loads((out / "checkpoint-6/trainer.json").read_text())
    assert (state["step"], state["samples"]) == (6, 4 * 2 * 2 + 2 * 2), state
