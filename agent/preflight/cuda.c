/* cuda.c - do programs get at the GPUs: CUDA's driver library starts and counts them, NCCL is there
 * and new enough. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/preflight/cudalib.h"
#include "agent/preflight/look.h"
#include "agent/preflight/nvml.h"
#include "agent/preflight/pci.h"

/* What cuInit() answers where something else is wrong than CUDA. */
enum { NO_DEVICE = 100, NOT_READY = 802, DRIVER_MISMATCH = 803 };

struct ours {
    uint64_t want; /* GPUs, at least */
    bool mig;      /* one of them is cut into instances, of which CUDA shows a process one */
};

/* What programs of ours must see: of what is expected of the node, a job may have been given fewer.
 * NVML tells, where it can. */
static struct ours ours_of(const struct look *l)
{
    const struct expected *x = &l->expect.is[EXPECT_gpus];
    struct ours o = {x->set ? x->n : 0, false};
    struct nvml *n = NULL;

    if (o.want == 0 || nvml_open(&n, NULL) != 0) {
        return o;
    }
    for (unsigned i = 0; i < n->n; i++) {
        unsigned now = 0, pending = 0;
        o.mig =
            o.mig || (n->gpu[i].dev != NULL &&
                      n->DeviceGetMigMode(n->gpu[i].dev, &now, &pending) == NVML_DONE && now != 0);
    }
    o.want = x->node ? min_u64(o.want, n->n) : o.want;
    return o;
}

static void not_started(const struct look *l, const struct cudalib *c, struct finding *f)
{
    switch (c->rc) {
    case NO_DEVICE:
        if (ours_of(l).want > 0) {
            finding_bad(
                f, "CUDA_NO_DEVICE",
                "check that CUDA_VISIBLE_DEVICES is not empty; the checks `bus` and `gpus` show "
                "what the node has",
                "CUDA sees no GPU");
        } else {
            finding_skip(f, "CUDA sees no GPU");
        }
        return;
    case NOT_READY:
        finding_bad(
            f, "CUDA_NOT_READY",
            "check systemctl status nvidia-fabricmanager: it must run in the same version as the "
            "driver",
            "CUDA cannot be initialised: the system is not ready yet (802)");
        return;
    case DRIVER_MISMATCH:
        finding_bad(f, "CUDA_MISMATCH",
                    "reboot if the driver was updated; in a container, its CUDA may be too new",
                    "CUDA cannot be initialised: libcuda.so.1 and the loaded driver have different "
                    "versions (803)");
        return;
    default:
        finding_bad(f, "CUDA_SICK", "check the kernel's log and the permissions of /dev/nvidia*",
                    "CUDA cannot be initialised: %s (%d)", cudalib_error(c, c->rc), c->rc);
    }
}

void check_cuda(struct look *l, struct finding *f)
{
    struct cudalib c;
    struct err why = {0};
    struct pci_gpus bus;
    uint64_t want = 0;
    struct ours o;
    int count = 0;

    if (cudalib_open(&c, &why) != 0) {
        pci_gpus(&l->sight, &bus);
        if ((expect_u64(&l->expect, EXPECT_gpus, &want) && want > 0) ||
            (bus.n > 0 && sight_is(&l->sight, "/dev/nvidiactl"))) {
            finding_bad(
                f, "CUDA_MISSING",
                "install the driver's libcuda (libcuda1); in a container, its runtime provides it",
                "%s", why.text);
        } else {
            finding_skip(f, "libcuda.so.1 was not found");
        }
        return;
    }
    if (c.rc != 0) {
        not_started(l, &c, f);
        return;
    }
    c.rc = c.DeviceGetCount(&count);
    if (c.rc != 0) {
        finding_bad(f, "CUDA_SICK", "check the kernel's log", "CUDA cannot count the GPUs: %s (%d)",
                    cudalib_error(&c, c.rc), c.rc);
        return;
    }
    o = ours_of(l);
    if (!o.mig && (uint64_t)count < o.want && getenv("CUDA_VISIBLE_DEVICES") == NULL) {
        finding_bad(f, "CUDA_FEWER", "the checks `gpus` and `handle` show which do not respond",
                    "CUDA sees %d %s, expected at least %" PRIu64, count,
                    count == 1 ? "GPU" : "GPUs", o.want);
    }
    finding_ok(f, "%d %s%s", count, count == 1 ? "GPU" : "GPUs",
               o.mig ? "; MIG is on, so a process sees one instance only" : "");
}

/* --- NCCL ------------------------------------------------------------------------------------- */

/* 2.8.4 is 2804, 2.9.6 is 20906. */
static void version_text(int v, char out[24])
{
    if (v < 10000) {
        snprintf(out, 24, "%d.%d.%d", v / 1000, v % 1000 / 100, v % 100);
    } else {
        snprintf(out, 24, "%d.%d.%d", v / 10000, v % 10000 / 100, v % 100);
    }
}

void check_nccl(struct look *l, struct finding *f)
{
    static const char *const places[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                         "/usr/local/cuda/lib/libnccl.so.2"};
    const struct expected *want = &l->expect.is[EXPECT_nccl];
    int (*get)(int *version) = NULL;
    char have[24];
    void *so = NULL;
    int version = 0;

    for (size_t i = 0; i < ARRAY_LEN(places) && so == NULL; i++) {
        so = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (so == NULL && want->set) {
        finding_bad(f, "NCCL_MISSING", "install libnccl2, unless the program ships its own",
                    "libnccl.so.2 was not found, expected at least %s", want->text);
        return;
    }
    if (so == NULL) {
        finding_skip(f, "libnccl.so.2 was not found (programs often ship their own)");
        return;
    }
    *(void **)(void *)&get = dlsym(so, "ncclGetVersion");
    if (get == NULL || get(&version) != 0 || version <= 0) {
        finding_bad(f, "NCCL_SICK", "reinstall libnccl2",
                    "libnccl.so.2 does not report its version");
        return;
    }
    version_text(version, have);
    if (want->set && version_cmp(have, want->text) < 0) {
        finding_bad(f, "NCCL_OLD", "update libnccl2", "NCCL is version %s, expected at least %s",
                    have, want->text);
    }
    finding_ok(f, "%s", have);
}
