"""The store alone under SIGKILL at random instants: publishes, fills, eviction, collection. KILLS=150 for the full run.

After each kill the store opens without repair, a deep verify finds nothing but orphan files, and every blob whose commit
was answered is there with its digest.
"""
import os
import pathlib
import random
import signal
import subprocess
import time

BUILD = pathlib.Path(os.environ.get("MIRROR_BUILD", "build"))
PROGRAM = BUILD / "harness" / "store_load"
KILLS = int(os.environ.get("KILLS", "12"))
SEED = int(os.environ.get("SEED", str(random.randrange(1 << 30))))
SLOW = int(os.environ.get("MIRROR_SLOW", "1"))


def test_sigkill(tmp_path):
    dice = random.Random(SEED)
    state = tmp_path / "state"
    kept = []
    orphans = 0
    for n in range(KILLS):
        kept += write_and_kill(state, SEED + n, dice.uniform(0.02, 0.6) * SLOW)
        lines = check(state, kept, f"SEED={SEED} kill={n}")
        orphans += int(lines[-1].split()[-1])
    print(f"{KILLS} kills, {len(kept)} kept blobs, {orphans} orphans")
    assert kept


def write_and_kill(state, seed, after_s):
    out = state.with_name("out")
    with open(out, "wb") as f:
        child = subprocess.Popen([PROGRAM, "write", state, str(seed)], stdout=f, stderr=subprocess.PIPE)
        time.sleep(after_s)
        died = child.poll()
        child.send_signal(signal.SIGKILL)
        err = child.communicate()[1].decode(errors="replace")
    assert died is None, f"the writer gave up by itself: {err[-2000:]}"
    text = out.read_text()
    return [line for line in text[:text.rfind("\n") + 1].splitlines() if line.startswith("kept ")]


def check(state, kept, where):
    done = subprocess.run([PROGRAM, "check", state], input="\n".join(kept) + "\n", capture_output=True, text=True,
                          timeout=120 * SLOW)
    assert done.returncode == 0, f"{where}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.splitlines()
