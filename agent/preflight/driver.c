/* driver.c - the driver, and whether all GPUs are there and answer. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/preflight/gpu.h"
#include "agent/preflight/pci.h"
#include "common/codec/units.h"

/* --- the driver ------------------------------------------------------------------------------- */

static void no_nvml(struct look *l, struct finding *f)
{
    struct pci_gpus g;
    uint64_t want = 0;
    bool expected =
        (expect_u64(&l->expect, EXPECT_gpus, &want) && want > 0) || l->expect.is[EXPECT_driver].set;

    pci_gpus(&l->sight, &g);
    if (l->nvml_rc != E_NOTFOUND) {
        finding_bad(f, "DRIVER_SICK", "check the kernel's log; reboot if the driver was updated",
                    "%s", l->nvml_why.text);
    } else if (expected || (g.n > 0 && sight_is(&l->sight, "/dev/nvidiactl"))) {
        finding_bad(
            f, "DRIVER_MISSING",
            "install the NVIDIA driver; in a container, have its runtime pass the GPUs through",
            "libnvidia-ml.so.1 could not be loaded: %s", l->nvml_why.text);
    } else if (g.n > 0) {
        finding_warn(
            f, "DRIVER_MISSING",
            "install the NVIDIA driver; in a container, have its runtime pass the GPUs through",
            "%zu %s on the bus, but no driver is visible", g.n, plural(g.n, "GPU", "GPUs"));
    } else {
        finding_skip(f, "no NVIDIA GPU on the bus and no driver");
    }
}

void check_driver(struct look *l, struct finding *f)
{
    struct finding unused = {0};
    char cuda[24];
    const struct expected *x = l->expect.is;

    gpus_of(l, &unused);
    if (l->nvml_rc != 0) {
        no_nvml(l, f);
        return;
    }
    snprintf(cuda, sizeof cuda, "%d.%d", l->nvml->cuda / 1000, l->nvml->cuda % 1000 / 10);
    if (x[EXPECT_driver].set && version_cmp(l->nvml->driver, x[EXPECT_driver].text) < 0) {
        finding_bad(f, "DRIVER_OLD", "update the driver of this node",
                    "the driver is version %s, expected at least %s", l->nvml->driver,
                    x[EXPECT_driver].text);
    }
    if (x[EXPECT_cuda].set && version_cmp(cuda, x[EXPECT_cuda].text) < 0) {
        finding_bad(f, "CUDA_OLD", "update the driver of this node",
                    "the driver supports CUDA %s, expected at least %s", cuda, x[EXPECT_cuda].text);
    }
    finding_ok(f, "%s, CUDA %s", l->nvml->driver, cuda);
}

/* --- how many --------------------------------------------------------------------------------- */

static bool has_bdf(const struct nvml *n, const char *bdf)
{
    for (unsigned i = 0; i < n->n; i++) {
        if (strcmp(n->gpu[i].bdf, bdf) == 0) {
            return true;
        }
    }
    return false;
}

/* A container or a device cgroup gives us some of the node's: those whose file cannot be opened are
 * not ours to miss. */
static bool is_our_device(const struct look *l, const char *bdf)
{
    char path[PATH_MAX], text[SIGHT_TEXT];
    const char *minor;
    unsigned number;
    int fd;

    snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", bdf);
    if (sight_read(&l->sight, path, text, NULL) != 0) {
        return false;
    }
    minor = strstr(text, "Device Minor:");
    if (minor == NULL || sscanf(minor, "Device Minor: %u", &number) != 1 ||
        !sight_path(&l->sight, path, "/dev/nvidia%u", number)) {
        return false;
    }
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd == -1) {
        return errno == EIO || errno == ENODEV || errno == ENXIO;
    }
    close(fd);
    return true;
}

void check_gpus(struct look *l, struct finding *f)
{
    struct finding unused = {0};
    const struct nvml *n = gpus_of(l, &unused);
    uint64_t want = 0;
    bool expected = expect_u64(&l->expect, EXPECT_gpus, &want);
    unsigned have = n != NULL ? n->n : 0, withheld = 0, judged;
    struct pci_gpus bus;

    if (l->nvml_rc != 0 && !(expected && want > 0)) {
        finding_skip(f, "%s", unused.text);
        return;
    }
    pci_gpus(&l->sight, &bus);
    for (size_t i = 0; l->nvml_rc == 0 && i < bus.n; i++) {
        if (l->nvml_rc == 0 && has_bdf(l->nvml, bus.gpu[i].name)) {
            continue;
        }
        if (is_our_device(l, bus.gpu[i].name)) {
            finding_bad(f, "GPU_LOST", GPUS_RESET_HINT,
                        "the GPU at %s is on the bus, but the driver has lost it", bus.gpu[i].name);
        } else {
            withheld++;
        }
    }
    /* What the node must have, others may have been given some of. */
    judged = have + (l->expect.is[EXPECT_gpus].node ? withheld : 0);
    if (expected && judged < want) {
        finding_bad(
            f, "GPUS_MISSING",
            "the check `bus` and the kernel's log show lost GPUs; the job may have been given "
            "fewer",
            "%u %s, expected at least %" PRIu64, judged, plural(judged, "GPU", "GPUs"), want);
    }
    if (have == 0) {
        finding_skip(f, "no GPU");
    } else if (withheld > 0) {
        finding_ok(f, "%u x %s; %u more on the bus %s not assigned to this job", have,
                   n->gpu[0].model, withheld, plural(withheld, "is", "are"));
    } else {
        finding_ok(f, "%u x %s", have, n->gpu[0].model);
    }
}

void check_handle(struct look *l, struct finding *f)
{
    const struct nvml *n = gpus_of(l, f);

    for (unsigned i = 0; n != NULL && i < n->n; i++) {
        const struct nvml_gpu *g = &n->gpu[i];
        unsigned celsius;
        int rc = g->rc;

        if (rc == NVML_DONE) { /* a handle may be had of a GPU that no longer answers */
            rc = n->DeviceGetTemperature(g->dev, NVML_TEMPERATURE_GPU, &celsius);
            rc = rc == NVML_LOST || rc == NVML_RESET ? rc : NVML_DONE;
        }
        if (rc != NVML_DONE) {
            finding_bad(f,
                        rc == NVML_LOST    ? "GPU_LOST"
                        : rc == NVML_RESET ? "GPU_RESET"
                                           : "GPU_SICK",
                        GPUS_RESET_HINT, "%s: %s", g->name, nvml_error(n, rc));
        }
    }
    if (n != NULL) {
        finding_ok(f, "%u %s", n->n, plural(n->n, "GPU answers", "GPUs answer"));
    }
}
