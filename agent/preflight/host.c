/* host.c - the machine itself: memory, /dev/shm, limits of this process, the kernel's health. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "agent/preflight/look.h"
#include "agent/preflight/pci.h"
#include "agent/preflight/rdma.h"
#include "common/codec/units.h"

/* --- memory ----------------------------------------------------------------------------------- */

/* "MemAvailable:   123 kB" */
static bool meminfo(const char *text, const char *name, uint64_t *bytes)
{
    struct slice rest = slice_str(text);

    while (rest.n > 0) {
        struct slice value = slice_cut(&rest, '\n');
        struct slice key = slice_cut(&value, ':');
        if (slice_eqs(key, name)) {
            value = slice_trim(value);
            value = slice_cut(&value, ' ');
            return slice_u64(value, bytes) && mul_u64(*bytes, 1024, bytes);
        }
    }
    return false;
}

/* The lowest limit from our cgroup up to the root; false: none. */
static bool cgroup_limit(const struct sight *s, const char *folder, const char *max, char *path,
                         uint64_t *limit)
{
    bool any = false;

    for (;;) {
        char file[PATH_MAX];
        uint64_t here;

        snprintf(file, sizeof file, "%.200s%.3000s/%s", folder, path, max);
        if (sight_u64(s, file, &here) && here < UINT64_C(1) << 60 && (!any || here < *limit)) {
            *limit = here;
            any = true;
        }
        if (path[0] == '\0') {
            return any;
        }
        *(strrchr(path, '/') != NULL ? strrchr(path, '/') : path) = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" is version 2, "9:memory:/path" version 1. */
static bool our_cgroup_limit(const struct sight *s, uint64_t *limit)
{
    char text[SIGHT_TEXT], path[SIGHT_TEXT];
    struct slice rest;

    if (sight_read(s, "/proc/self/cgroup", text, NULL) != 0) {
        return false;
    }
    rest = slice_str(text);
    while (rest.n > 0) {
        struct slice line = slice_cut(&rest, '\n');
        struct slice number = slice_cut(&line, ':');
        struct slice names = slice_cut(&line, ':');
        bool two = slice_eqs(number, "0") && names.n == 0;

        if (!two && !slice_eqs(names, "memory")) {
            continue;
        }
        snprintf(path, sizeof path, SLICE_FMT, SLICE_ARG(line));
        if (strcmp(path, "/") == 0) {
            path[0] = '\0';
        }
        if (two ? cgroup_limit(s, "/sys/fs/cgroup", "memory.max", path, limit)
                : cgroup_limit(s, "/sys/fs/cgroup/memory", "memory.limit_in_bytes", path, limit)) {
            return true;
        }
    }
    return false;
}

void check_memory(struct look *l, struct finding *f)
{
    char text[SIGHT_TEXT], have[UNITS_TEXT], all[UNITS_TEXT], most[UNITS_TEXT], need[UNITS_TEXT];
    uint64_t total = 0, available = 0, limit = 0, want = 0;
    bool limited = our_cgroup_limit(&l->sight, &limit);
    bool expected = expect_u64(&l->expect, EXPECT_memory, &want);

    if (sight_read(&l->sight, "/proc/meminfo", text, NULL) != 0 ||
        !meminfo(text, "MemTotal", &total) || !meminfo(text, "MemAvailable", &available)) {
        finding_skip(f, "/proc/meminfo does not report it");
        return;
    }
    limited = limited && limit < total;
    if (limited) {
        /* What a cgroup has used is page cache too, which it gives back: its limit is what
         * counts. */
        available = min_u64(available, limit);
    }
    size_format(available, have);
    size_format(total, all);
    size_format(limit, most);
    size_format(want, need);
    if (expected && l->expect.is[EXPECT_memory].node) {
        /* What runs here, and how much of the node a job was given, is no fault of the node's. */
        if (total < want) {
            finding_bad(f, "MEMORY_LOW",
                        "a memory module may be missing or disabled (dmidecode -t memory)",
                        "the machine has %s, expected at least %s", all, need);
        }
    } else if (expected && available < want) {
        finding_bad(
            f, "MEMORY_LOW", "end other processes on this node, or request more memory for the job",
            "%s of %s%s%s%s are available, expected at least %s", have, all,
            limited ? " (the cgroup's limit: " : "", limited ? most : "", limited ? ")" : "", need);
    }
    finding_ok(f, "%s of %s are available%s%s", have, all,
               limited ? ", the cgroup's limit is " : "", limited ? most : "");
}

void check_shm(struct look *l, struct finding *f)
{
    char path[PATH_MAX], have[UNITS_TEXT], need[UNITS_TEXT];
    uint64_t size, want = UINT64_C(1) << 30;
    struct pci_gpus gpus;
    struct statvfs fs;
    bool said = expect_u64(&l->expect, EXPECT_shm, &want);

    if (!sight_path(&l->sight, path, "/dev/shm") || statvfs(path, &fs) == -1) {
        finding_bad(f, "SHM_MISSING", "mount a tmpfs at /dev/shm", "there is no /dev/shm");
        return;
    }
    pci_gpus(&l->sight, &gpus);
    size = (uint64_t)fs.f_blocks * fs.f_frsize;
    size_format(size, have);
    size_format(want, need);
    if (size < want && said) {
        finding_bad(
            f, "SHM_SMALL",
            "remount it with a larger size (containers: --shm-size, emptyDir with medium: Memory)",
            "the size of /dev/shm is %s, expected at least %s", have, need);
    } else if (size < want && gpus.n > 0) {
        finding_warn(
            f, "SHM_SMALL",
            "remount it with a larger size (containers: --shm-size, emptyDir with medium: Memory)",
            "the size of /dev/shm is %s: data loaders and NCCL may crash with a bus error", have);
    }
    finding_ok(f, "the size of /dev/shm is %s", have);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void limit_text(rlim_t v, char out[UNITS_TEXT], bool bytes)
{
    if (v == RLIM_INFINITY) {
        snprintf(out, UNITS_TEXT, "unlimited");
    } else if (bytes) {
        size_format(v, out);
    } else {
        snprintf(out, UNITS_TEXT, "%" PRIu64, (uint64_t)v);
    }
}

/* An Ethernet card may call itself an RDMA device and never be used as one. */
static bool rdma_matters(const struct look *l)
{
    enum { PORTS = 64 };
    struct rdma_port port[PORTS];
    size_t n = rdma_ports(&l->sight, port, PORTS);
    uint64_t want = 0;

    if ((expect_u64(&l->expect, EXPECT_ib_ports, &want) && want > 0) ||
        (expect_u64(&l->expect, EXPECT_ib_rate, &want) && want > 0)) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (port[i].infiniband && strcmp(port[i].state, "ACTIVE") == 0) {
            return true;
        }
    }
    return false;
}

void check_memlock(struct look *l, struct finding *f)
{
    static const char hint[] =
        "set LimitMEMLOCK=infinity for slurmd or the container daemon, or memlock unlimited in "
        "limits.conf";
    char text[UNITS_TEXT];
    struct rlimit r;

    if (!rdma_is(&l->sight)) {
        finding_skip(f, "no RDMA device");
        return;
    }
    if (getrlimit(RLIMIT_MEMLOCK, &r) == -1) {
        finding_skip(f, "the limit could not be read: %s", strerror(errno));
        return;
    }
    limit_text(r.rlim_cur, text, true);
    if (r.rlim_cur != RLIM_INFINITY && rdma_matters(l)) {
        finding_bad(f, "MEMLOCK", hint,
                    "locked memory is limited to %s: RDMA cannot register its buffers", text);
    } else if (r.rlim_cur != RLIM_INFINITY) {
        finding_warn(f, "MEMLOCK", hint,
                     "locked memory is limited to %s: RoCE could not register its buffers", text);
    }
    finding_ok(f, "locked memory is %s", text);
}

void check_nofile(struct look *l, struct finding *f)
{
    char soft[UNITS_TEXT], hard[UNITS_TEXT];
    uint64_t want = 0;
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == -1) {
        finding_skip(f, "the limit could not be read: %s", strerror(errno));
        return;
    }
    limit_text(r.rlim_cur, soft, false);
    limit_text(r.rlim_max, hard, false);
    if (expect_u64(&l->expect, EXPECT_nofile, &want) && r.rlim_max != RLIM_INFINITY &&
        r.rlim_max < want) {
        finding_bad(
            f, "NOFILE",
            "raise LimitNOFILE= for slurmd or the container daemon, or nofile in limits.conf",
            "the hard limit on open files is %s (soft limit %s), expected at least %" PRIu64, hard,
            soft, want);
    }
    finding_ok(f, "the soft limit on open files is %s, the hard limit %s", soft, hard);
}

/* --- the kernel ------------------------------------------------------------------------------- */

void check_kernel(struct look *l, struct finding *f)
{
    static const struct {
        unsigned bit;
        const char *what;
    } marks[] = {{4, "a machine check exception (hardware)"},
                 {5, "a memory page in a bad state"},
                 {7, "an oops"},
                 {14, "a CPU lockup"}};
    uint64_t taint;

    if (!sight_u64(&l->sight, "/proc/sys/kernel/tainted", &taint)) {
        finding_skip(f, "/proc/sys/kernel/tainted does not exist");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        if ((taint >> marks[i].bit & 1) != 0) {
            finding_bad(f, "KERNEL_TAINT", "check the kernel's log and reboot the node",
                        "the kernel reports %s since boot", marks[i].what);
        }
    }
    finding_ok(f, "no oops, lockup or machine check since boot");
}
