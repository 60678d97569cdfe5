"""What gpu-check says of a GPU that computes wrongly, hangs, crashes or refuses: the host's double (tests/simt) plays one."""
import os
import shutil
import subprocess
import sys

import pytest

from harness.mirrord import BUILD, ROOT

CHECK = BUILD / "simt" / "gpu-check"
# A row that hangs costs this much; any other row has so long, however busy the machine is.
PATIENCE, GENEROUS = "3", "300"

pytestmark = pytest.mark.skipif(not CHECK.exists(), reason="sanitizers do not understand threads that are fibers")


def check(fault, *args):
    """Exit status, and the rows by name and type; behind each what follows it indented."""
    run = subprocess.run([CHECK, "--only", "add+copied rows", "--quick", *args], env=dict(os.environ, SIMT_FAULT=fault),
                         text=True, capture_output=True, check=False)
    assert run.stderr == ""
    rows, name = {}, None
    for line in run.stdout.splitlines():
        if line.startswith("    "):
            rows[name] += line
        elif "  ok" in line or "  FAILED" in line:
            name = line[:30].strip()
            rows[name] = line[30:]
    return run.returncode, rows, run.stdout


def test_a_sound_device_passes():
    rc, rows, said = check("", "--limit", GENEROUS)
    assert rc == 0 and said.endswith("gpu-check: all rows hold\n")
    assert {n.replace(" ", "") for n in rows} == {"copiedrowsf32", "copiedrowsbf16", "addf32", "addbf16"}
    assert all("  ok" in line for line in rows.values())


@pytest.mark.parametrize("fault, words", [
    ("wrong", ["p[2]", "got", "wanted", "elements"]),
    ("nan", ["got", "nan", "wanted"]),
    ("crash", ["signal 11"]),
    ("refused", ["add", "add_cuda, line 16: cudaErrorInvalidConfiguration (9)"]),
    ("broken", ["mem_get_cuda, line 139: cudaErrorIllegalAddress (700)", "CUDA_LAUNCH_BLOCKING=1"]),
])
def test_a_fault_costs_its_own_row(fault, words):
    rc, rows, said = check(fault, "--limit", GENEROUS)
    assert rc == 1 and said.endswith("gpu-check: FAILED\n"), said
    by_name = {" ".join(n.split()): line for n, line in rows.items()}
    assert "FAILED" in by_name["add f32"] and all(w in by_name["add f32"] for w in words), said
    assert all("  ok" in line for n, line in by_name.items() if n != "add f32") and len(by_name) == 4, said


def test_a_row_that_hangs_leaves_the_table_of_the_others():
    rc, rows, said = check("hang", "--limit", PATIENCE)
    by_name = {" ".join(n.split()): line for n, line in rows.items()}
    assert rc == 1 and f"no answer within {PATIENCE} s" in by_name["add f32"], said
    assert len(by_name) == 4, said  # a busy machine may have called others too slow


def test_rows_can_be_listed_and_named():
    said = subprocess.run([CHECK, "--list"], text=True, capture_output=True, check=True).stdout.splitlines()
    assert "matmul bf16" in said and len(said) == len(set(said)) > 40
    wrong = subprocess.run([CHECK, "--only", "ad"], text=True, capture_output=True, check=False)
    assert wrong.returncode == 64 and "no such row" in wrong.stderr


@pytest.mark.parametrize("answer, version, words", [
    (0, 12040, "the driver supports CUDA 12.4, but this build needs"),
    (100, 99990, "no device is visible (CUDA_VISIBLE_DEVICES=7)"),
    (802, 99990, "nvidia-fabricmanager"),
    (999, 99990, "cudaErrorUnknown (999): unknown error"),
])
def test_why_cuda_does_not_start(answer, version, words):
    if not (BUILD / "trainer-cuda.so").exists():
        pytest.skip("no CUDA compiler: there is no CUDA to start")
    env = dict(os.environ, LD_LIBRARY_PATH=str(CHECK.parent / "driver"), FAKE_CUDA_RC=str(answer), FAKE_CUDA_VERSION=str(version),
               CUDA_VISIBLE_DEVICES="7")
    said = subprocess.run([BUILD / "gpu-check"], env=env, text=True, capture_output=True, check=True).stdout
    assert said.startswith("gpu-check: skipped, nothing was checked: CUDA: ") and words in said
    trained = subprocess.run([BUILD / "trainer", "bench", "--config", "tiny-gpt2", "--device", "cuda"], env=env, text=True,
                             capture_output=True, check=False)
    assert trained.returncode != 0 and "--device cuda: CUDA: " in trained.stderr and words in trained.stderr


@pytest.fixture
def kit(tmp_path):
    """What check.py wants beside itself."""
    for script in (ROOT / "tests/gpu/check.py", ROOT / "tests/bench/torch_baseline.py"):
        shutil.copy(script, tmp_path)
    shutil.copy(CHECK, tmp_path)
    return tmp_path


def program(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def run_check(kit, fault, *args):
    return subprocess.run([sys.executable, kit / "check.py", "--build", kit, *args], env=dict(os.environ, SIMT_FAULT=fault),
                          text=True, capture_output=True, check=False)


def table_of(run):
    """The rows of the last table, by their first words."""
    return {line.split("  ")[0]: line for line in run.stdout[run.stdout.rindex("\n\n"):].splitlines()}


def run_kit(kit, fault, *args):
    # A wrapper: the rows of one operation stand for all.
    (kit / "gpu-check").rename(kit / "gpu-check.real")
    program(kit / "gpu-check", f'[ "$1" = --look ] && exec {kit}/gpu-check.real "$@"\n'
                               f'exec {kit}/gpu-check.real --only add --limit {GENEROUS}\n')
    return run_check(kit, fault, *args)


def test_the_last_lines_name_what_failed(kit):
    run = run_kit(kit, "wrong", "--only", "twins", "--log", kit / "log")
    tail = run.stdout[run.stdout.rindex("\n\n"):]
    assert run.returncode == 1 and run.stderr == "", run.stdout + run.stderr
    assert "add" in tail and "wanted" in tail and "twins" in tail and tail.endswith("gpu-check: FAILED\n")
    assert (kit / "log").read_text() == run.stdout


def test_a_part_that_fails_leaves_the_others(kit):
    run = run_kit(kit, "", "--only", "twins,resume,speed,tables")  # there is no trainer
    table = table_of(run)
    assert run.returncode == 1 and " ok " in table["twins"], run.stdout
    assert all("FAILED" in table[p] and "FileNotFound" in table[p] for p in ("resume", "speed", "tables"))


def test_a_trainer_that_crashes_says_by_what(kit):
    program(kit / "trainer", "echo on its way; kill -SEGV $$")
    table = table_of(run_kit(kit, "", "--only", "resume,speed"))
    assert "FAILED" in table["resume"] and "on its way (signal 11)" in table["resume"]
    assert "none" in table["speed gpt2-124m"] and "(signal 11)" in table["speed gpt2-124m"]


def test_what_hangs_is_stopped_and_what_it_said_is_kept(kit):
    program(kit / "gpu-check", '[ "$1" = --look ] && exec echo gpu-check: a device\necho the first row\nexec sleep 1000\n')
    run = run_check(kit, "", "--only", "twins,resume", "--minutes", "0.25")
    table = table_of(run)
    assert run.returncode == 1 and "the first row\n" in run.stdout
    assert "FAILED" in table["twins"] and "stopped after" in table["twins"]
    assert "no time" in table["resume"]


def test_one_program_is_run_with_the_kits_libraries(kit):
    program(kit / "trainer", 'echo "$LD_LIBRARY_PATH" "$@"; exit 7')
    run = run_check(kit, "", "--run", "trainer", "--only", "x")
    assert run.returncode == 7 and run.stdout.startswith(f"{kit}/lib") and run.stdout.endswith(" --only x\n")
