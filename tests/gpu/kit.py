#!/usr/bin/env python3
"""kit.py - a folder that can be carried to a GPU machine on which nothing can be built or installed: kit.py BUILD TO

It holds the trainer, gpu-check, the CUDA plugin, the libraries that they need but for libc's own, the compiler's and CUDA's,
and check.py: `python3 TO/check.py --build TO`. TO.tar.xz is the same in a fifth of the room.
"""
import pathlib
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("trainer", "gpu-check", "trainer-cuda.so")
# libc and what must match it (a libstdc++ older than that of the libraries there would stop them), and what comes with CUDA
# or the driver.
THERE = ("libstdc++", "libgcc_s", "linux-vdso", "ld-linux", "libc.so", "libm.so", "libmvec", "libpthread", "libdl", "librt",
         "libresolv", "libcuda", "libcublas", "libcudnn", "libnvidia")


def needed(path):
    lines = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.splitlines()
    found = (line.split("=>")[1].split()[0] for line in lines if "=> /" in line)
    return [pathlib.Path(f) for f in found if not pathlib.Path(f).name.startswith(THERE)]


def main():
    build, kit = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shutil.rmtree(kit, ignore_errors=True)
    (kit / "lib").mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copy(build / name, kit)
        for library in needed(build / name):
            shutil.copy(library, kit / "lib")
    for script in (HERE / "check.py", HERE.parent / "bench" / "torch_baseline.py"):
        shutil.copy(script, kit)
    for f in (*(kit / "lib").iterdir(), *(kit / name for name in PROGRAMS)):
        subprocess.run(["strip", "--strip-unneeded", f], check=False, stderr=subprocess.DEVNULL)
    packed = kit.with_name(kit.name + ".tar.xz")
    with tarfile.open(packed, "w:xz", preset=2) as tar:
        tar.add(kit, kit.name)
    size = sum(f.stat().st_size for f in kit.rglob("*") if f.is_file())
    print(f"{kit}: {size / 2**20:.0f} MiB ({packed.name}: {packed.stat().st_size / 2**20:.0f}); "
          f"there: python3 {kit.name}/check.py --build {kit.name}")


if __name__ == "__main__":
    main()
