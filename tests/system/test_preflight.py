"""trainagent preflight as a whole program: a node made of files, what it tells of it and how, and jobs that do not start."""
import contextlib
import ctypes
import json
import os
import pty
import re
import subprocess
import time

import pytest

from harness.mirrord import BUILD, SANITIZERS, SLOW
from harness.way import Way

WELL = {"proc/meminfo": "MemTotal: 2147483648 kB\nMemFree: 1 kB\nMemAvailable: 1610612736 kB\n", "proc/self/cgroup": "0::/\n",
        "proc/sys/kernel/tainted": "12289\n", "proc/sys/kernel/osrelease": "6.8.0-60-generic\n"}


GPU = "driver,gpus,handle,ecc,remap,retired,throttle,temperature,pcie,nvlink,fabric,gpu-memory,compute-mode,persistence"
MINE = "nofile = 1 shm = 0 timeout = 60s skip = {%s}" % ", ".join(f'"{name}"' for name in (GPU + ",cuda,nccl,disk").split(","))


class Node:
    """proc, sys and dev below a folder, and a preflight that looks there."""

    def __init__(self, folder):
        self.folder, self.root, self.err = folder, folder / "root", ""
        self.env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(folder), **SANITIZERS, "TRAINAGENT_SHELF": str(folder / "shelf"),
                    "TRAINAGENT_STATE": str(folder / "state"), "TRAINAGENT_PREFLIGHT": str(folder / "node.conf")}
        self.conf(MINE)  # not the GPUs of the machine that tests, nor how full its disk is
        for path, text in WELL.items():
            self.put(path, text)
        (self.root / "dev/shm").mkdir(parents=True)
        (self.root / "sys/bus/pci/devices").mkdir(parents=True)

    def conf(self, keys):
        (self.folder / "node.conf").write_text(f"preflight {{ {keys} }}\n")

    def put(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def pci(self, name, driver="nvidia", kind="0x030200", cpus="0-1023", head=b"\xde\x10\x30\x23"):
        folder = self.root / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        for file, text in {"vendor": "0x10de", "class": kind, "local_cpulist": cpus, "numa_node": "1"}.items():
            (folder / file).write_text(text + "\n")
        (folder / "config").write_bytes(head)
        if driver:
            (folder / "driver").symlink_to(f"../../drivers/{driver}")

    def port(self, device, number=1, state="4: ACTIVE", phys="5: LinkUp", rate="400 Gb/sec (4X NDR)", link="InfiniBand"):
        for file, text in {"state": state, "phys_state": phys, "rate": rate, "link_layer": link}.items():
            self.put(f"sys/class/infiniband/{device}/ports/{number}/{file}", text + "\n")

    def run(self, *args, code=0, **env):
        done = subprocess.run([BUILD / "trainagent", *map(str, args)], capture_output=True, text=True, check=False, cwd=self.folder,
                              stdin=subprocess.DEVNULL, env={**self.env, **env}, timeout=240 * SLOW)
        self.err = done.stderr
        assert done.returncode in (code if isinstance(code, tuple) else (code,)), done
        return done.stdout

    def look(self, *args, code=0, **env):
        """The limits are not what is tested, but where a test says so: a busy machine is given a minute."""
        own = any("timeout=" in str(a) for a in args)
        got = json.loads(self.run("preflight", "--json", "--root", self.root, *([] if own else ["--expect", "timeout=60s"]), *args,
                                  code=code, **env))
        assert got["exit"] in (code if isinstance(code, tuple) else (code,))
        self.checks = {c["check"]: c for c in got["checks"]}
        return got

    def found(self, check, status, text="", code=""):
        c = self.checks[check]
        assert (c["status"], c["code"]) == (status, code) and re.search(text, c["text"]), c
        assert bool(c["code"]) == bool(c["hint"]) == (status in ("WARN", "CRIT")), c


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


# --- how it is told ------------------------------------------------------------------------------------------------------


def test_lines_table_and_exit_codes(node):
    out = node.run("preflight", "--root", node.root).splitlines()
    assert out[0].startswith("OK: ") and all(re.match(r"(OK  |SKIP) [a-z_-]+: \S", line) for line in out[1:])
    node.conf("memory = 100t " + MINE)
    out = node.run("preflight", "--root", node.root, code=2).splitlines()
    assert out[0] == "CRIT: memory: the machine has 2.00 TiB, expected at least 100 TiB"
    assert any(line.startswith("CRIT memory: ") and "[MEMORY_LOW]" in line for line in out)
    quiet = node.run("-q", "preflight", "--root", node.root, code=2).splitlines()
    assert len(quiet) == 2 and quiet[0] == out[0]
    node.conf("memory = 100t warn = {\"memory\"} " + MINE)
    assert node.run("preflight", "--root", node.root, code=1).startswith("WARN: memory: ")
    assert node.run("preflight", "--root", node.root, "--skip", "memory").startswith("OK: ")
    assert node.run("preflight", "--root", node.root, "--only", "affinity", code=3).startswith("UNKNOWN: no check could run")
    assert node.run("-q", "preflight", "--root", node.root, "--only", "kernel") == ""


def test_a_terminal_gets_a_table(node):
    main, end = pty.openpty()
    child = subprocess.Popen([BUILD / "trainagent", "preflight", "--root", node.root, "--expect", "memory=100t"], stdout=end, env=node.env)
    os.close(end)
    text = b""
    try:
        while block := os.read(main, 4096):
            text += block
    except OSError:  # how a terminal tells that nobody is left
        pass
    os.close(main)
    assert child.wait(120 * SLOW) == 2
    lines = text.decode().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("memory        CRIT  1.50 TiB of 2.00 TiB"))
    assert lines[at + 1].startswith(" " * 20) and "(MEMORY_LOW)" in " ".join(lines[at + 1:at + 3])
    assert lines[-1].startswith("CRIT: memory: ") and lines[-1].endswith(" ms")


def test_json_is_stable(node):
    got = node.look("--explain")
    assert set(got) == {"verdict", "exit", "text", "drain", "began", "took_ms", "checks", "numa"}
    for c in got["checks"]:
        assert set(c) == {"check", "status", "code", "text", "more", "hint", "took_ms"}


def test_metrics_for_node_exporter(node):
    file = node.folder / "preflight.prom"
    node.run("preflight", "--root", node.root, "--textfile", file, "--expect", "memory=100t", code=2)
    text = file.read_text()
    assert 'trainagent_preflight_status{check="memory"} 2\n' in text and 'trainagent_preflight_status{check="kernel"} 0\n' in text
    assert "trainagent_preflight_verdict 2\n" in text and 'trainagent_preflight_checks{status="crit"} 1\n' in text
    assert re.search(r"^trainagent_preflight_timestamp_seconds \d{10}$", text, re.M)
    assert [p.name for p in node.folder.glob("*.prom*")] == ["preflight.prom"] and file.stat().st_mode & 0o777 == 0o644
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) trainagent_preflight_\w+ .+|trainagent_preflight_\w+(\{\w+="[\w-]+"\})? [\d.]+', line), line
    node.run("preflight", "--root", node.root, "--textfile", node.folder / "no/such/x.prom", code=66)
    assert "x.prom" in node.err


@pytest.mark.parametrize("args,code,says", [
    (["--only", "dsk"], 64, "dsk is not a check; did you mean disk?"), (["--only", ""], 64, "no check is given"),
    (["--expect", "gpu=8"], 64, "did you mean gpus?"), (["--expect", "gpus=many"], 64, "is not a number"),
    (["-c", "/nonexistent.conf"], 66, "/nonexistent.conf"), (["one", "two"], 64, "takes one JOB file"), (["/nonexistent.conf"], 66, "nonexistent"),
    (["--ful"], 0, ""), (["--fulll"], 64, "did you mean --full?")])
def test_slips(node, args, code, says):
    node.run("preflight", "--root", node.root, *args, code=code)
    assert says in node.err and node.err.count("\n") == (code != 0)


def test_a_wrong_file_is_told_with_its_line(node):
    node.conf("\n gpus = 8\n gpsu = 4")
    node.run("preflight", "--root", node.root, code=78)
    assert re.search(r"node.conf:3: unknown key \"gpsu\".*did you mean \"gpus\"", node.err)
    node.run("pull", "x/y", "--full", code=64)
    assert "--full does not belong to pull" in node.err


# --- what it finds in files ----------------------------------------------------------------------------------------------


def test_gpus_on_the_bus(node):
    node.pci("0000:1b:00.0")
    node.pci("0000:1c:00.0")
    node.pci("0000:1d:00.0", driver="vfio-pci")  # a virtual machine's
    node.pci("0000:1e:00.0", kind="0x068000")  # an NVSwitch
    node.look("--only", "bus")
    node.found("bus", "OK", "^2 GPUs on the bus$")
    node.pci("0000:1f:00.0", head=b"\xff" * 4)
    node.pci("0000:20:00.0", driver="")
    node.put("sys/module/nvidia/refcnt", "1\n")
    node.look("--only", "bus", code=2)
    node.found("bus", "CRIT", "0000:1f:00.0 has fallen off the bus; the GPU at 0000:20:00.0 has no driver", "GPU_OFF_BUS")


def test_a_card_that_shows_a_picture(node):
    """On nouveau, where nobody wants GPUs: no reason to drain a node."""
    node.pci("0000:01:00.0", driver="nouveau", kind="0x030000")
    node.look("--only", "bus", code=1)
    node.found("bus", "WARN", "^the GPU at 0000:01:00.0 has the driver nouveau$", "GPU_NO_DRIVER")
    node.look("--only", "bus", "--expect", "gpus=0", code=1)
    node.look("--only", "bus", "--expect", "gpus=1", code=2)
    node.put("sys/module/nvidia/refcnt", "1\n")
    node.look("--only", "bus", code=2)
    node.found("bus", "CRIT", "nouveau", "GPU_NO_DRIVER")


def test_cpus_near_the_gpus(node):
    node.pci("0000:1b:00.0", cpus="0-1023")
    node.pci("0000:1c:00.0", cpus="1000-1023")
    got = node.look("--only", "affinity", "--explain")
    node.found("affinity", "OK", "^1 of 2 GPUs have local CPUs that this process may use$")
    assert got["numa"][0] == {"device": "gpu 0000:1b:00.0", "node": "1", "local_cpus": "0-1023", "ours": len(os.sched_getaffinity(0))}
    (node.root / "sys/bus/pci/devices/0000:1b:00.0/local_cpulist").write_text("1001\n")
    node.look("--only", "affinity", code=1)
    node.found("affinity", "WARN", "no CPU of this process", "CPUS_FAR")
    assert "gpu 0000:1c:00.0       1     1000-1023" in node.run("preflight", "--root", node.root, "--only", "bus", "--explain")


def test_ports(node):
    node.port("mlx5_0")
    node.port("mlx5_1")
    node.port("mlx5_2", state="1: DOWN", phys="2: Polling")
    node.port("mlx5_bond_0", rate="25 Gb/sec (1X EDR)", link="Ethernet")
    node.look("--only", "ib")
    node.found("ib", "OK", "^3 of 4 ports active$")
    node.look("--only", "ib", "--expect", "ib_ports=4", code=2)
    node.found("ib", "CRIT", "3 of 4 expected ports", "IB_PORTS")
    node.port("mlx5_2", state="2: INIT")
    node.look("--only", "ib", "--expect", "ib_rate=25", code=2)
    node.found("ib", "CRIT", "^mlx5_2/1 has a link, but its state is INIT$", "IB_INACTIVE")


def test_ports_that_are_slower(node):
    """Ports for storage and administration are ordinary: a node is sick only where fewer than it must have are fast enough."""
    node.port("mlx5_0")
    node.port("mlx5_1")
    node.port("mlx5_2", rate="100 Gb/sec (4X EDR)")
    node.port("mlx5_bond_0", rate="25 Gb/sec (1X EDR)", link="Ethernet")
    node.look("--only", "ib", code=1)
    node.found("ib", "WARN", "^mlx5_2/1 runs at 100 Gb/s, but another port of this node at 400$", "IB_SLOW")
    node.look("--only", "ib", "--expect", "ib_rate=400", "--expect", "ib_ports=2")
    node.found("ib", "OK", "^4 of 4 ports active$")
    node.look("--only", "ib", "--expect", "ib_rate=400", "--expect", "ib_ports=3", code=2)
    node.found("ib", "CRIT", "^2 of 3 expected ports run at 400 Gb/s$", "IB_SLOW")
    node.look("--only", "ib", "--expect", "ib_rate=400", "--expect", "ib_ports=5", code=2)
    node.found("ib", "CRIT", "^4 of 5 expected ports are active$", "IB_PORTS")
    node.look("--only", "ib", "--expect", "ib_rate=400", code=1)
    node.found("ib", "WARN", "^mlx5_2/1 runs at 100 Gb/s, expected at least 400$", "IB_SLOW")
    node.look("--only", "ib", "--expect", "ib_rate=800", code=2)
    node.found("ib", "CRIT", "^0 of 1 expected ports run at 800 Gb/s$", "IB_SLOW")
    node.look("--only", "ib", "--expect", "ib_rate=25")
    for device in ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_bond_0"):
        node.port(device, state="1: DOWN", phys="2: Polling")
    node.look("--only", "ib", code=1)
    node.found("ib", "WARN", "^none of 4 ports is active$", "IB_PORTS")
    node.look("--only", "ib", "--expect", "ib_rate=400", code=2)


def test_rdma_of_gpu_memory(node):
    node.look("--only", "peermem,memlock", code=3)
    node.port("mlx5_0")
    node.pci("0000:1b:00.0")
    node.look("--only", "peermem", code=1)
    node.found("peermem", "WARN", "neither", "NO_PEERMEM")
    node.put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01\n")
    node.look("--only", "peermem")
    node.found("peermem", "OK", "dma-buf")
    node.put("proc/sys/kernel/osrelease", "5.4.0\n")
    node.look("--only", "peermem", code=1)
    node.put("sys/module/nvidia_peermem/refcnt", "0\n")
    node.look("--only", "peermem")


def test_locked_memory(node):
    """Cards of Ethernet show themselves as RDMA devices too: a node whose RDMA nobody asks for is not sick."""
    def look(code, *args):
        line = ["sh", "-c", 'ulimit -l 64; exec "$@"', "sh", BUILD / "trainagent", "preflight", "--root", node.root, "--only", "memlock", *args]
        done = subprocess.run(line, env=node.env, capture_output=True, text=True, check=False, timeout=120 * SLOW)
        assert done.returncode == code and "locked memory is limited to 64.0 KiB" in done.stdout and "[MEMLOCK]" in done.stdout, done

    node.port("mlx5_0", link="Ethernet")
    look(1)
    look(2, "--expect", "ib_rate=25")
    look(2, "--expect", "ib_ports=1")
    node.port("mlx5_1", state="1: DOWN", phys="3: Disabled")
    look(1)
    node.port("mlx5_1")
    look(2)


def test_memory_of_a_cgroup(node):
    node.put("proc/self/cgroup", "0::/slurm/job_1/step_0\n")
    node.put("sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n")
    node.put("sys/fs/cgroup/slurm/job_1/memory.max", f"{64 << 30}\n")
    node.put("sys/fs/cgroup/slurm/memory.max", f"{96 << 30}\n")
    node.look("--only", "memory", "--expect", "memory=64g")
    node.found("memory", "OK", "64.0 GiB of 2.00 TiB are available, the cgroup's limit is 64.0 GiB")
    node.look("--only", "memory", "--expect", "memory=65g", code=2)
    node.found("memory", "CRIT", "64.0 GiB of 2.00 TiB .the cgroup.s limit: 64.0 GiB. are available", "MEMORY_LOW")
    node.conf('memory = "1900g"')  # of the node: a job's share is no fault of it
    node.look("--only", "memory")
    job = node.folder / "job.conf"
    job.write_text('run { command = {"true"} }\npreflight { memory = 65g }')
    node.look(job, "--only", "memory", code=2)
    node.found("memory", "CRIT", "64.0 GiB of 2.00 TiB", "MEMORY_LOW")
    node.conf("memory = 3t")
    node.look("--only", "memory", code=2)
    node.found("memory", "CRIT", "^the machine has 2.00 TiB, expected at least 3.00 TiB$", "MEMORY_LOW")
    node.conf("nofile = 1")
    node.put("proc/self/cgroup", "9:memory:/a\n8:cpu:/a\n")
    node.put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", f"{9223372036854771712}\n")
    node.put("sys/fs/cgroup/memory/memory.limit_in_bytes", f"{32 << 30}\n")
    node.look("--only", "memory")
    node.found("memory", "OK", "limit is 32.0 GiB")


def test_the_kernels_health(node):
    node.put("proc/sys/kernel/tainted", f"{1 << 4 | 1 << 7}\n")
    node.look("--only", "kernel", code=1)
    node.found("kernel", "WARN", "a machine check exception .hardware. since boot; the kernel reports an oops since boot", "KERNEL_TAINT")
    node.put("proc/sys/kernel/tainted", "none\n")
    node.look("--only", "kernel", code=3)


def test_disks(node):
    node.look("--only", "disk", code=(0, 1))  # how full this one is, is not the test's
    assert node.checks["disk"]["code"] in ("", "DISK_FREE", "DISK_INODES"), node.checks["disk"]
    node.look("--only", "disk", "--expect", "disk_free=1k", code=(0, 1))  # what is expected takes the place of 5 %
    assert node.checks["disk"]["code"] in ("", "DISK_INODES"), node.checks["disk"]
    node.look("--only", "disk", "--expect", "disk_free=900t", code=2)
    node.found("disk", "CRIT", "the local cache, .*expected at least 900 TiB", "DISK_FREE")
    job = node.folder / "job.conf"
    job.write_text('run { command = {"true"} out = "/proc/nowhere" }\npreflight { disk_free = 1k }')
    node.look(job, "--only", "disk", code=2)
    node.found("disk", "CRIT", "the job's output folder", "DISK_FREE")  # proc has no room


# --- the driver and its GPUs: tests/fake/nvml.c ---------------------------------------------------------------------------


@pytest.fixture
def gpus(node):
    """look(knobs, ...): the checks of NVML on a node whose library does as the knobs say."""
    fakes = BUILD / "fake"
    if not (fakes / "libnvidia-ml.so.1").exists():
        pytest.fail(f"{fakes} is not built: make test-programs")

    def look(knobs="", *args, code=0, only=GPU, **env):
        return node.look("--only", only, *args, code=code, FAKE_NVML=knobs, LD_LIBRARY_PATH=str(fakes), **env)
    return look


def test_gpus_that_are_well(node, gpus):
    gpus()
    assert {c["status"] for c in node.checks.values()} == {"OK"} and list(node.checks) == GPU.split(",")
    gpus("driver=570.158.01;cuda=12080", "--expect", "driver=570.86", "--expect", "cuda=12.8", "--expect", "gpus=8", "--expect", "nvlinks=18")
    node.found("driver", "OK", "^570.158.01, CUDA 12.8$")
    node.found("gpus", "OK", "^8 x NVIDIA Fake 80GB$")


@pytest.mark.parametrize("knobs,check,status,code,text", [
    ("driver=535.183.01", "driver", "CRIT", "DRIVER_OLD", "is version 535.183.01, expected at least 550"),
    ("cuda=12020", "driver", "CRIT", "CUDA_OLD", "supports CUDA 12.2, expected at least 12.4"),
    ("init=18", "driver", "CRIT", "DRIVER_SICK", "Driver/library version mismatch .18"),
    ("init=9", "driver", "CRIT", "DRIVER_SICK", "Driver Not Loaded"),
    ("gpus=7", "gpus", "CRIT", "GPUS_MISSING", "^7 GPUs, expected at least 8$"),
    ("gpus=0", "gpus", "CRIT", "GPUS_MISSING", "^0 GPUs, expected at least 8$"),
    ("5.lost=1", "handle", "CRIT", "GPU_LOST", "^GPU 5: GPU is lost$"),
    ("2.handle=16", "handle", "CRIT", "GPU_RESET", "^GPU 2: GPU requires reset$"),
    ("2.handle=999", "handle", "CRIT", "GPU_SICK", "^GPU 2: Unknown Error$"),
    ("3.ecc=2", "ecc", "CRIT", "ECC_VOLATILE", "^GPU 3 .0000:13:00.0.: 2 uncorrected"),
    ("3.ecc_ever=9", "ecc", "WARN", "ECC_AGGREGATE", "^GPU 3 .0000:13:00.0.: 9 uncorrected ECC errors in its lifetime$"),
    ("1.remap_pending=1", "remap", "CRIT", "REMAP_PENDING", "GPU 1"), ("1.remap_failed=1", "remap", "CRIT", "REMAP_FAILED", "GPU 1"),
    ("0.retired=1", "retired", "CRIT", "PAGES_PENDING", "GPU 0"),
    ("4.throttle=72", "throttle", "CRIT", "THROTTLED", "GPU 4 .*thermal limit"), ("4.throttle=128", "throttle", "CRIT", "THROTTLED", "power supply"),
    ("4.throttle=32", "throttle", "WARN", "THROTTLED", "close to its temperature limit"),
    ("6.celsius=87", "temperature", "CRIT", "HOT", "GPU 6 .*87 C; it slows down at 87 C"),
    ("6.celsius=83", "temperature", "WARN", "WARM", "83 C"), ("none=DeviceGetTemperatureThreshold;6.celsius=91", "temperature", "CRIT", "HOT", "at 90 C"),
    ("7.width=8", "pcie", "CRIT", "PCIE_NARROW", "x8 of x16"), ("7.gen=3", "pcie", "CRIT", "PCIE_SLOW", "generation 3 of 5"),
    ("0.links=17", "nvlink", "CRIT", "NVLINK_DOWN", "GPU 0 .*: 17 of 18 NVLinks are up$"),
    ("0.fabric=2", "fabric", "CRIT", "FABRIC", "GPU 0 .*has not joined"), ("0.fabric_status=999", "fabric", "CRIT", "FABRIC", "Unknown Error"),
    ("2.used_mib=40960;2.processes=3", "gpu-memory", "WARN", "GPU_IN_USE", "GPU 2 .*40.0 GiB of its memory is in use by 3 processes"),
    ("2.compute=2", "compute-mode", "CRIT", "COMPUTE_PROHIBITED", "GPU 2"), ("persistence=0", "persistence", "WARN", "PERSISTENCE_OFF", "GPU 0 ")])
def test_gpus_that_are_sick(node, gpus, knobs, check, status, code, text):
    gpus(knobs, "--expect", "driver=550", "--expect", "cuda=12.4", "--expect", "gpus=8", code=2 if status == "CRIT" else 1)
    node.found(check, status, text, code)
    others = {c["check"]: c["status"] for c in node.checks.values() if c["check"] != check and c["status"] in ("WARN", "CRIT")}
    assert set(others) <= {"gpus"}, others  # where NVML does not start, none is counted


def test_what_is_usual_is_no_trouble(node, gpus):
    """An idle GPU slows its link, another sort has no ECC, no NVLink, no fabric, an old driver fewer calls."""
    gpus("gen=1;width=8;pstate=8;links=0;fabric=0;none=DeviceGetTotalEccErrors")
    node.found("pcie", "OK")
    node.found("nvlink", "SKIP", "no NVLink is up")
    node.found("ecc", "SKIP", "no GPU on this node reports it")
    node.found("fabric", "SKIP", "no NVSwitch")
    node.pci("0000:c1:00.0", kind="0x068000")
    gpus("fabric=0", only="fabric", code=1)
    node.found("fabric", "WARN", "1 NVSwitch, but no fabric manager is running", "FABRIC")
    node.put("proc/4711/comm", "nv-fabricmanage\n")
    gpus("fabric=0", only="fabric")


def test_nvlinks_of_bridges(node, gpus):
    """Two of four are bridged, another model has other links: only NVSwitches connect all."""
    pair = "gpus=4;links=0;0.links=4;1.links=4"
    gpus(pair, only="nvlink", code=1)
    node.found("nvlink", "WARN", "^GPU 2 .*: no NVLink is up, but another GPU has 4; GPU 3 ", "NVLINK_NONE")
    gpus(pair + ";2.model=NVIDIA Other;3.model=NVIDIA Other", only="nvlink")
    node.found("nvlink", "OK", "^up to 4 NVLinks up, equally many on all GPUs of a model$")
    gpus("gpus=4;2.links=6;3.links=6;2.model=NVIDIA Other;3.model=NVIDIA Other", only="nvlink")
    gpus("gpus=4;1.links=3;0.links=4;2.links=4;3.links=4", only="nvlink", code=2)
    node.found("nvlink", "CRIT", "^GPU 1 .*: 3 of 4 NVLinks are up$", "NVLINK_DOWN")
    gpus(pair, "--expect", "nvlinks=4", only="nvlink", code=2)
    gpus("gpus=4;links=0", "--expect", "nvlinks=4", only="nvlink", code=2)
    gpus(pair, "--expect", "nvlinks=0", only="nvlink")
    node.pci("0000:c1:00.0", kind="0x068000")
    gpus("3.links=0", only="nvlink", code=2)
    node.found("nvlink", "CRIT", "^GPU 3 .*: 0 of 18 NVLinks are up$", "NVLINK_DOWN")


def test_many_sick_gpus_are_counted(node, gpus):
    got = gpus("ecc=1", code=2, only="ecc")
    assert got["checks"][0]["text"].count("GPU") + got["checks"][0]["more"] == 8


@pytest.mark.parametrize("knobs,lost", [("hang=DeviceGetRemappedRows", "remap"), ("7.hang=DeviceGetNvLinkState", "nvlink")])
def test_nvml_that_hangs_costs_one_check(node, gpus, knobs, lost):
    """Only the calls that never return run out of their time: the others have as long as they need."""
    gpus(knobs, "--expect", "timeout=30s", code=2)
    node.found(lost, "CRIT", "did not end within 30 s", "HANGS")
    assert {c["status"] for name, c in node.checks.items() if name != lost} == {"OK"}


def test_nvml_that_hangs_from_the_start(node, gpus):
    gpus("hang=Init_v2", "--expect", "timeout=1s", code=2, only="driver,gpus,ecc")
    node.found("driver", "CRIT", "did not end within 1 s", "HANGS")
    node.found("gpus", "CRIT", "did not end", "HANGS")
    node.found("ecc", "SKIP", "2 earlier checks of its group gave no result")


def test_nvml_that_crashes(node, gpus):
    gpus("3.crash=DeviceGetTotalEccErrors", code=2)
    node.found("ecc", "CRIT", "killed: Aborted", "CRASHED")
    assert {c["status"] for name, c in node.checks.items() if name != "ecc"} == {"OK"}


def test_who_reads_our_output_waits_for_no_hung_process(node):
    """slurmd waits for all that hold a prolog's output."""
    env = {**node.env, "FAKE_NVML": "hang=DeviceGetCount_v2", "LD_LIBRARY_PATH": str(BUILD / "fake")}
    line = [BUILD / "trainagent", "preflight", "--root", node.root, "--only", "driver", "--expect", "timeout=100ms"]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=120 * SLOW)
    assert done.returncode == 2 and done.stdout.startswith("CRIT: driver: the check did not end within 0.1 s\n"), done


def test_a_gpu_that_the_driver_lost(node, gpus):
    """On the bus, given to us, and NVML has it not; others of the node are another container's."""
    for i in range(3):
        node.pci(f"0000:{0x10 + i:02x}:00.0")
        node.put(f"proc/driver/nvidia/gpus/0000:{0x10 + i:02x}:00.0/information", f"Model: \t x\nDevice Minor: \t {i}\n")
    node.put("dev/nvidia0", "")
    node.put("dev/nvidia1", "")
    gpus("gpus=2", only="gpus")
    node.found("gpus", "OK", "^2 x NVIDIA Fake 80GB; 1 more on the bus is not assigned to this job$")
    node.conf("gpus = 3")  # of the node: a job that was given two of them is no fault of it
    gpus("gpus=2", only="gpus,cuda", FAKE_CUDA="gpus=2")
    node.found("gpus", "OK", "^2 x ")
    node.found("cuda", "OK", "^2 GPUs$")
    gpus("gpus=2", only="cuda", code=2, FAKE_CUDA="gpus=1")
    node.found("cuda", "CRIT", "^CUDA sees 1 GPU, expected at least 2$", "CUDA_FEWER")
    gpus("gpus=2", "--expect", "gpus=3", code=2, only="gpus")  # what a job itself asks for is
    node.found("gpus", "CRIT", "^2 GPUs, expected at least 3$", "GPUS_MISSING")
    gpus("gpus=1", code=2, only="gpus")  # which the driver lost: its file opens
    node.conf("gpus = 4")
    gpus("gpus=2", code=2, only="gpus")
    node.found("gpus", "CRIT", "^3 GPUs, expected at least 4$", "GPUS_MISSING")
    node.put("dev/nvidia2", "")
    node.conf("gpus = 3")
    gpus("gpus=2", code=2, only="gpus")
    node.found("gpus", "CRIT", "0000:12:00.0 is on the bus, but the driver has lost it", "GPU_LOST")


def test_no_driver(node):
    with contextlib.suppress(OSError):
        ctypes.CDLL("libnvidia-ml.so.1")
        pytest.skip("this machine has the driver")
    node.look("--only", GPU, code=3)
    node.look("--only", "driver,gpus", "--expect", "gpus=1", code=2)
    node.found("driver", "CRIT", "libnvidia-ml.so.1", "DRIVER_MISSING")
    node.found("gpus", "CRIT", "^0 GPUs, expected at least 1$", "GPUS_MISSING")
    node.pci("0000:1b:00.0")
    node.look("--only", "driver", code=1)
    node.found("driver", "WARN", "1 GPU on the bus, but no driver is visible", "DRIVER_MISSING")
    node.put("dev/nvidiactl", "")
    node.look("--only", "driver", code=2)


# --- CUDA and NCCL: tests/fake/cuda.c, nccl.c ------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs,status,code,text", [
    ("", "OK", "", "^8 GPUs$"), ("init=802", "CRIT", "CUDA_NOT_READY", "802"), ("init=803", "CRIT", "CUDA_MISMATCH", "803"),
    ("init=999", "CRIT", "CUDA_SICK", "unknown error .999"), ("init=100", "CRIT", "CUDA_NO_DEVICE", "sees no GPU"),
    ("gpus=7", "CRIT", "CUDA_FEWER", "^CUDA sees 7 GPUs, expected at least 8$")])
def test_cuda(node, gpus, knobs, status, code, text):
    gpus("", "--expect", "gpus=8", only="cuda", code=2 if status == "CRIT" else 0, FAKE_CUDA=knobs)
    node.found("cuda", status, text, code)


def test_cuda_where_a_job_was_given_fewer(node, gpus):
    gpus("", "--expect", "gpus=8", only="cuda", FAKE_CUDA="gpus=2", CUDA_VISIBLE_DEVICES="0,1")
    gpus("", only="cuda", code=3, FAKE_CUDA="init=100")
    node.found("cuda", "SKIP", "sees no GPU")


def test_cuda_of_a_mig_instance(node, gpus):
    """CUDA shows a process one instance, however many GPUs there are."""
    gpus("3.mig=1", "--expect", "gpus=8", only="cuda", FAKE_CUDA="gpus=1")
    node.found("cuda", "OK", "^1 GPU; MIG is on")
    gpus("none=DeviceGetMigMode", "--expect", "gpus=8", only="cuda", code=2, FAKE_CUDA="gpus=1")
    node.found("cuda", "CRIT", "^CUDA sees 1 GPU, expected at least 8$", "CUDA_FEWER")


def test_cuda_that_hangs(node, gpus):
    gpus("", "--expect", "timeout=1s", only="cuda", code=2, FAKE_CUDA="hang=1")
    node.found("cuda", "CRIT", "did not end within 1 s", "HANGS")


def test_nccl(node, gpus):
    gpus("", "--expect", "nccl=2.20", only="nccl")
    node.found("nccl", "OK", r"^2\.23\.4$")
    gpus("", "--expect", "nccl=2.24", only="nccl", code=1)
    node.found("nccl", "WARN", r"^NCCL is version 2\.23\.4, expected at least 2\.24$", "NCCL_OLD")
    gpus("", only="nccl", FAKE_NCCL="2804")
    node.found("nccl", "OK", r"^2\.8\.4$")
    gpus("", only="nccl", code=1, FAKE_NCCL="0")
    node.found("nccl", "WARN", "does not report", "NCCL_SICK")


# --- --full --------------------------------------------------------------------------------------------------------------


def test_what_only_full_asks(node):
    quick = set(c["check"] for c in json.loads(node.run("preflight", "--json", "--root", node.root, "--expect", "timeout=60s"))["checks"])
    (node.folder / "shelf").mkdir()
    node.look("--full", "--skip", ",".join(sorted(quick)), code=(0, 1, 3), FAKE_NVML="gpus=0", FAKE_CUDA="gpus=0", LD_LIBRARY_PATH=str(BUILD / "fake"))
    assert list(node.checks) == ["write", "copy", "gemm"]
    node.found("copy", "SKIP")
    node.found("gemm", "SKIP")


def test_writing_to_the_shelf(node):
    node.look("--only", "write", code=3)
    node.found("write", "SKIP", "there is no local cache yet")
    assert not (node.folder / "shelf").exists()  # root's would not be its user's
    (node.folder / "shelf").mkdir()
    try:
        os.close(os.open(node.folder / "shelf", os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError as why:
        node.look("--only", "write", code=3)
        node.found("write", "SKIP", "unnamed temporary files")
        pytest.skip(f"{node.folder}: O_TMPFILE: {why.strerror}")
    node.look("--only", "write")
    node.found("write", "OK", "^the local cache's disk writes .*/s$")
    assert list((node.folder / "shelf").iterdir()) == []
    node.look("--only", "write", "--expect", "disk_rate=900t", code=1)
    node.found("write", "WARN", "expected at least 900 TiB/s", "WRITE_SLOW")
    (node.folder / "file").write_text("")
    node.look("--only", "write", code=1, TRAINAGENT_SHELF=str(node.folder / "file"))
    node.found("write", "WARN", "the local cache: ", "WRITE_FAILED")


@pytest.mark.parametrize("knobs,args,status,code,text", [
    ("gpus=2", [], "OK", "", "^2 GPUs: at least .*/s between host and GPU, data intact$"),
    ("gpus=2;1.flip=1", [], "CRIT", "COPY_DIFFERS", "^GPU 1 .0000:11:00.0.: 64 MiB that were copied to it and back came back corrupted$"),
    ("gpus=2;1.alloc=2", [], "CRIT", "COPY_FAILED", "^GPU 1 .*: out of memory .2.$"), ("gpus=2;0.fail=719", [], "CRIT", "COPY_FAILED", "719"),
    ("gpus=2;0.context=46", [], "CRIT", "COPY_FAILED", "^GPU 0 .*46"),
    ("gpus=1", ["--expect", "copy_rate=900t"], "CRIT", "COPY_SLOW", "expected at least 900 TiB/s")])
def test_copies(node, gpus, knobs, args, status, code, text):
    gpus("", *args, only="copy", code=2 if status == "CRIT" else 0, FAKE_CUDA=knobs)
    node.found("copy", status, text, code)


TRAINER = """#!/bin/sh
# trainer bench, as it answers on the GPU that it was given
[ "$1 $2 $3 $4" = "bench --json --device cuda" ] && [ "$CUDA_DEVICE_ORDER" = PCI_BUS_ID ] || exit 64
echo "$CUDA_VISIBLE_DEVICES" >> "$HOME/asked"
echo "warn some words" >&2
%s
echo '{"device": "fake", "rows": [{"table": "gemm", "what": "a", "tflops": 3.5}, {"table": "gemm", "what": "b", "tflops": '$rate'}]}'
"""


@pytest.mark.parametrize("does,args,status,code,text", [
    ("rate=700", [], "OK", "", "^4 GPUs: 700 to 700 TFLOP/s in matrix products$"),
    ("rate=700; [ $CUDA_VISIBLE_DEVICES = 2 ] && rate=500", [], "CRIT", "GEMM_SLOW", "^GPU 2: 500 TFLOP/s in matrix products, but another GPU of this node reaches 700$"),
    ("rate=700", ["--expect", "tflops=800"], "CRIT", "GEMM_SLOW", "expected at least 800"),
    ("rate=700; [ $CUDA_VISIBLE_DEVICES = 1 ] && { echo cudaErrorIllegalAddress >&2; exit 71; }", [], "CRIT", "GEMM_FAILED",
     "^GPU 1: trainer bench exited with 71: cudaErrorIllegalAddress$"),
    ("rate=700; [ $CUDA_VISIBLE_DEVICES = 1 ] && kill -9 $$", [], "CRIT", "GEMM_FAILED", "^GPU 1: trainer bench exited with 137"),
    ("rate='\"many\"'", [], "OK", "", "4 to 4 TFLOP/s"), ("exit 0", [], "CRIT", "GEMM_FAILED", "GPU 0"),
    ("echo no NVIDIA driver >&2; exit 69", [], "SKIP", "", "no NVIDIA driver")])
def test_products(node, gpus, does, args, status, code, text):
    (node.folder / "bin").mkdir()
    (node.folder / "bin/trainer").write_text(TRAINER % does)
    (node.folder / "bin/trainer").chmod(0o755)
    gpus("gpus=4", *args, only="gemm", code={"OK": 0, "CRIT": 2, "SKIP": 3}[status], PATH=f"{node.folder}/bin:/usr/bin:/bin")
    node.found("gemm", status, text, code)
    assert sorted((node.folder / "asked").read_text().split()) == ["0", "1", "2", "3"]


def test_products_end_with_a_killed_preflight(node, gpus):
    """Nobody is left on a GPU that the next job is given."""
    (node.folder / "bin").mkdir()
    (node.folder / "bin/trainer").write_text('#!/bin/sh\necho $$ >> "$HOME/pids"\nexec sleep 900\n')
    (node.folder / "bin/trainer").chmod(0o755)
    env = {**node.env, "FAKE_NVML": "gpus=2", "LD_LIBRARY_PATH": str(BUILD / "fake"), "PATH": f"{node.folder}/bin:/usr/bin:/bin"}
    child = subprocess.Popen([BUILD / "trainagent", "preflight", "--only", "gemm", "--expect", "timeout=600s"], env=env, stdout=subprocess.DEVNULL)
    pids = node.folder / "pids"
    try:
        wait_for(lambda: pids.exists() and pids.read_text().count("\n") == 2)
    finally:
        child.kill()
        child.wait(120 * SLOW)
    wait_for(lambda: not any(runs(pid) for pid in pids.read_text().split()))


def test_products_without_a_process(node, gpus):
    """One that does not start has no end to wait for: another's is not taken."""
    if SLOW > 1:
        pytest.skip("a sanitizer wants to be loaded first")
    gpus("gpus=2", only="gemm", code=1, LD_PRELOAD=str(BUILD / "fake/nofork.so"))
    node.found("gemm", "WARN", "^GPU 0: trainer bench could not be started: fork: .*; GPU 1: ", "GEMM_NOT_RUN")


def runs(pid):
    """Somebody else may have to reap it."""
    try:
        return open(f"/proc/{pid}/stat", encoding="utf-8").read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(what):
    end = time.monotonic() + 120 * SLOW
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_products_of_a_jobs_own_gpus(node, gpus):
    (node.folder / "bin").mkdir()
    gpus("gpus=4", only="gemm", code=3, PATH=f"{node.folder}/bin")
    node.found("gemm", "SKIP", "trainer is not in PATH")
    (node.folder / "bin/trainer").write_text(TRAINER % "rate=700")
    (node.folder / "bin/trainer").chmod(0o755)
    gpus("gpus=4", only="gemm", PATH=f"{node.folder}/bin:/usr/bin:/bin", CUDA_VISIBLE_DEVICES="GPU-1f,3")
    assert sorted((node.folder / "asked").read_text().split()) == ["3", "GPU-1f"]


# --- the kernel's log ------------------------------------------------------------------------------------------------------

XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid=1, name=python, some words"


def log(node, *texts, at=1):
    node.put("dev/kmsg", "".join(f"4,{n},{at + n},-;{text}\n SUBSYSTEM=pci\n" for n, text in enumerate(texts)))


@pytest.mark.parametrize("text,status,code,says", [
    (XID.format(79), "CRIT", "XID_79", "^0000:3b:00: Xid 79, the GPU has fallen off the bus, .* ago$"),
    (XID.format(48), "CRIT", "XID_48", "double-bit"), (XID.format(31), "WARN", "XID", "Xid 31, a GPU memory page fault"),
    (XID.format(63), "OK", "", "no Xid"), (XID.format(999), "WARN", "XID", "Xid 999, .* ago$"), ("eth0: link is up", "OK", "", "no Xid"),
    ("NVRM: fallen off the bus and is not responding to commands.", "CRIT", "XID_79", "fallen off"),
    ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)", "CRIT", "GPU_NO_START", "0000:01:00.0 could not be initialised"),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46", "CRIT", "SXID_FATAL", "0000:c1:00.0: fatal SXid 20034"),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 46", "WARN", "SXID", "SXid 12028")])
def test_xids(node, text, status, code, says):
    log(node, "Linux version 6.8", text, "eth0: link is up")
    node.look("--only", "xid", code=["OK", "WARN", "CRIT"].index(status))
    node.found("xid", status, says, code)


def test_a_users_crash_is_no_xid(node):
    """The kernel writes a program's name and its file's into its log: they are its user's words."""
    log(node, f"a.out[77]: segfault at 0 ip 1 sp 2 error 4 in {XID.format(79)}[400000+1000]", "NVRM: Xid (PCI:[77]: segfault at 0 in 0000:3b:00): 79",
        "traps: NVRM: GPU 0:0.0[7] trap int3 in fallen off the bus", "x[7]: segfault in nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal")
    (node.root / "dev/kmsg").open("a").write(f"12,9,9,-;{XID.format(79)}\n")  # not the kernel's: a program's
    node.look("--only", "xid")
    node.found("xid", "OK")
    log(node, XID.format(79))
    node.look("--only", "xid", code=2)
    assert "xid_age" in node.checks["xid"]["hint"] and "reboot" in node.checks["xid"]["hint"]


def test_many_xids(node):
    log(node, *[XID.format(n) for n in [31] * 5000 + [95] * 3 + [48] * 2000])
    node.look("--only", "xid", code=2)
    node.found("xid", "CRIT", "Xid 95, .* ago, 3 times; .*Xid 48, .* ago, 2000 times$", "XID_95")


def test_how_old_an_xid_counts(node):
    """Microseconds since boot: this one came with it."""
    log(node, XID.format(79), at=1)
    node.look("--only", "xid", code=2)
    node.look("--only", "xid", "--expect", "xid_age=1ms")


def test_no_log_to_read(node):
    node.look("--only", "xid", code=3)
    node.found("xid", "SKIP", "/dev/kmsg: No such file")
    if os.geteuid() != 0:
        log(node, XID.format(79))
        (node.root / "dev/kmsg").chmod(0)
        node.look("--only", "xid", code=3)
        node.found("xid", "SKIP", "CAP_SYSLOG")


# --- the mirror ----------------------------------------------------------------------------------------------------------


def test_the_mirror(node, mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }')
    node.look("--only", "mirror,clock", code=3)
    node.look("--only", "mirror,clock", "--expect", "latency=60s", "--expect", "clock_skew=60s", "--mirror", m.url(""))
    node.found("mirror", "OK", "^the mirror responded after ")
    with Way(m.port) as way:
        way.disturb = lambda _: time.sleep(0.05)
        node.look("--only", "mirror", "--expect", "latency=20ms", "--mirror", f"http://127.0.0.1:{way.port}", code=1)
    node.found("mirror", "WARN", "took .* to respond", "MIRROR_SLOW")
    m.stop()
    node.look("--only", "mirror,clock", "--mirror", m.url(""), code=1)
    node.found("mirror", "WARN", "", "MIRROR_AWAY")
    node.found("clock", "SKIP", "had no Date")


# --- jobs ----------------------------------------------------------------------------------------------------------------


def job(node, section, command='"sh", "-c", "touch started"'):
    path = node.folder / "job.conf"
    path.write_text(f"run {{ command = {{{command}}} restarts = 2 backoff = 1ms }}\n{section}\n")
    return path


def test_a_job_does_not_start_on_a_sick_node(node):
    node.conf('timeout = 60s only = {"memory"}')
    path = job(node, "preflight { memory = 900t }")
    node.run("run", path, code=71)
    assert "this node is not fit for the job: memory: " in node.err and "MEMORY_LOW" in node.err
    assert not (node.folder / "started").exists()
    assert "E_SICK in preflight: this node is not fit" in node.run("status")
    node.run("run", job(node, "preflight { memory = 900t start_on = crit }"))
    assert (node.folder / "started").exists() and "MEMORY_LOW" in node.err
    node.run("run", job(node, "preflight { memory = 900t warn = {\"memory\"} start_on = ok }"), code=71)
    node.conf('memory = 900t timeout = 60s only = {"memory"}')
    node.run("run", job(node, ""))  # a job that asks for nothing is not held up
    node.run("run", job(node, "preflight { }"), code=71)
    node.run("run", job(node, "preflight { memory = 1k }"))  # the job's keys over the node's
    node.run("run", job(node, "preflight { gpus = none }"), code=78)
    assert "job.conf:2: gpus = \"none\": it is not a number" in node.err


def test_a_node_that_fell_sick_gets_no_restart(node):
    """The first attempt changes what the node must have, and fails in the way that is started again."""
    node.conf('timeout = 60s only = {"memory"}')
    (node.folder / "sick.conf").write_text('preflight { memory = 900t timeout = 60s only = {"memory"} }')
    sick = "echo x >> tries; cp sick.conf node.conf; exit 75"
    node.run("run", job(node, "preflight { }", f'"sh", "-c", "{sick}"'), code=71)
    assert (node.folder / "tries").read_text() == "x\n"
