"""What the CUDA compiler says of our kernels, beside what a device has for a block: a kernel that cannot be launched is seen
here, not on the first GPU."""
import collections
import re

import pytest

from harness.mirrord import BUILD, ROOT

REGISTERS, STATIC_SHARED, WARP = 65536, 48 << 10, 32
# Threads of a block, by kernel; all others have launch.cuh's THREADS.
THREADS = {"columns_finish_kernel": 1024, "norm_forward_kernel": 1024, "norm_backward_kernel": 1024, "row_kernel": 1024}
Kernel = collections.namedtuple("Kernel", "file name arch registers shared spilled")


def kernels():
    found, folder = [], ROOT / "kernels/cuda"
    small = (folder / "small.cu").read_text()
    for path in sorted(BUILD.glob("so/kernels/cuda/*.o.said")):
        source = path.name.removesuffix(".o.said") + ".cu"
        if not (folder / source).exists() or f'/{source}"' in small:
            continue  # an older build's
        name = arch = spilled = None
        for line in path.read_text().splitlines():
            if m := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)", line):
                name, arch, spilled = m[1], int(m[2]), 0
            elif m := re.search(r"(\d+) bytes spill stores", line):
                spilled = int(m[1])
            elif (m := re.search(r"Used (\d+) registers(.*)", line)) and name:
                shared = re.search(r"(\d+) bytes smem", m[2])
                found.append(Kernel(path.name, name, arch, int(m[1]), int(shared[1]) if shared else 0, spilled))
                name = None
    return found


@pytest.fixture(scope="module")
def all_kernels():
    found = kernels()
    if not found:
        pytest.skip("no CUDA compiler: no kernels were compiled")
    return found


def threads_of(kernel):
    return next((n for name, n in THREADS.items() if re.search(rf"\d{name}", kernel.name)), 256)


def test_every_block_has_registers(all_kernels):
    """A warp takes registers in steps of 256."""
    too_many = [k for k in all_kernels if -(-k.registers // 8) * 8 * threads_of(k) > REGISTERS]
    assert not too_many, "\n".join(f"{k.file}: {k.name} on sm_{k.arch}: {k.registers} registers in {threads_of(k)} threads"
                                   for k in too_many)


def test_every_block_has_shared_memory(all_kernels):
    too_much = [k for k in all_kernels if k.shared > STATIC_SHARED]
    assert not too_much, "\n".join(f"{k.file}: {k.name} on sm_{k.arch}: {k.shared} bytes" for k in too_much)


def test_every_kernel_is_there_for_every_chip(all_kernels):
    by_arch = collections.defaultdict(set)
    for k in all_kernels:
        by_arch[k.arch].add((k.file, k.name))
    assert len(set(map(frozenset, by_arch.values()))) == 1, {arch: len(names) for arch, names in by_arch.items()}
    assert {n for n in THREADS if not any(re.search(rf"\d{n}", k.name) for k in all_kernels)} == set(), "a kernel's name changed"
