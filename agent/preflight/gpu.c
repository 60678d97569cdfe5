/* gpu.c - what NVML tells of the driver and of each GPU. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/preflight/look.h"
#include "agent/preflight/nvml.h"
#include "agent/preflight/pci.h"
#include "common/codec/units.h"

#define RESET_HINT                                                                                 \
    "drain the node and reset the GPU (nvidia-smi -r); one that does it again goes back"

/* Opened by the first check of a process. NULL: it does not start, and the check is skipped. */
static const struct nvml *nvml_of(struct look *l, struct finding *f)
{
    if (!l->nvml_asked) {
        l->nvml_asked = true;
        l->nvml_rc = nvml_open(&l->nvml, &l->nvml_why);
    }
    if (l->nvml_rc != 0) {
        if (l->nvml_rc == E_NOTFOUND) {
            finding_skip(f, "no NVIDIA driver here");
        } else {
            finding_skip(f, "%s", l->nvml_why.text);
        }
        return NULL;
    }
    if (l->nvml->n == 0) {
        finding_skip(f, "no GPU");
        return NULL;
    }
    return l->nvml;
}

/* Those that have no handle, or get lost meanwhile, are told by `handle`. */
#define EACH_GPU(n, g)                                                                             \
    for (const struct nvml_gpu *g = (n)->gpu; g < (n)->gpu + (n)->n; g++)                          \
        if (g->dev != NULL)

static void told_by(struct finding *f, unsigned n, const char *fine)
{
    if (n == 0) {
        finding_skip(f, "no GPU here tells it");
    } else {
        finding_ok(f, "%u %s: %s", n, plural(n, "GPU", "GPUs"), fine);
    }
}

/* --- the driver -------------------------------------------------------------------------------------------------------- */

static void no_nvml(struct look *l, struct finding *f)
{
    struct pci_gpus g;
    uint64_t want = 0;
    bool expected =
        (expect_u64(&l->expect, EXPECT_gpus, &want) && want > 0) || l->expect.is[EXPECT_driver].set;

    pci_gpus(&l->sight, &g);
    if (l->nvml_rc != E_NOTFOUND) {
        finding_bad(f, "DRIVER_SICK",
                    "look at the kernel's log; after an update of the driver, reboot", "%s",
                    l->nvml_why.text);
    } else if (expected || (g.n > 0 && sight_is(&l->sight, "/dev/nvidiactl"))) {
        finding_bad(f, "DRIVER_MISSING",
                    "install the NVIDIA driver; in a container, ask its runtime for the GPUs",
                    "libnvidia-ml.so.1 does not load: %s", l->nvml_why.text);
    } else if (g.n > 0) {
        finding_warn(f, "DRIVER_MISSING",
                     "install the NVIDIA driver; in a container, ask its runtime for the GPUs",
                     "%zu %s on the bus, and no driver for us", g.n, plural(g.n, "GPU", "GPUs"));
    } else {
        finding_skip(f, "no NVIDIA GPU on the bus, no driver");
    }
}

void check_driver(struct look *l, struct finding *f)
{
    struct finding unused = {0};
    char cuda[24];
    const struct expected *x = l->expect.is;

    nvml_of(l, &unused);
    if (l->nvml_rc != 0) {
        no_nvml(l, f);
        return;
    }
    snprintf(cuda, sizeof cuda, "%d.%d", l->nvml->cuda / 1000, l->nvml->cuda % 1000 / 10);
    if (x[EXPECT_driver].set && version_cmp(l->nvml->driver, x[EXPECT_driver].text) < 0) {
        finding_bad(f, "DRIVER_OLD", "update the driver of this node",
                    "the driver is %s, expected is %s", l->nvml->driver, x[EXPECT_driver].text);
    }
    if (x[EXPECT_cuda].set && version_cmp(cuda, x[EXPECT_cuda].text) < 0) {
        finding_bad(f, "CUDA_OLD", "update the driver of this node",
                    "the driver runs CUDA %s, expected is %s", cuda, x[EXPECT_cuda].text);
    }
    finding_ok(f, "%s, CUDA %s", l->nvml->driver, cuda);
}

/* --- how many ---------------------------------------------------------------------------------------------------------- */

static bool has_bdf(const struct nvml *n, const char *bdf)
{
    for (unsigned i = 0; i < n->n; i++) {
        if (strcmp(n->gpu[i].bdf, bdf) == 0) {
            return true;
        }
    }
    return false;
}

/* A container or a device cgroup gives us some of the node's: those whose file cannot be opened are not ours to miss. */
static bool is_ours(const struct look *l, const char *bdf)
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
    const struct nvml *n = nvml_of(l, &unused);
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
        if (is_ours(l, bus.gpu[i].name)) {
            finding_bad(f, "GPU_LOST", RESET_HINT,
                        "the GPU at %s is on the bus, but the driver has lost it", bus.gpu[i].name);
        } else {
            withheld++;
        }
    }
    /* What the node must have, others may have been given some of. */
    judged = have + (l->expect.is[EXPECT_gpus].node ? withheld : 0);
    if (expected && judged < want) {
        finding_bad(f, "GPUS_MISSING",
                    "`bus` and the kernel's log tell of lost ones; a job may have been given fewer",
                    "%u %s, expected are %" PRIu64, judged, plural(judged, "GPU", "GPUs"), want);
    }
    if (have == 0) {
        finding_skip(f, "no GPU");
    } else if (withheld > 0) {
        finding_ok(f, "%u x %s; %u more on the bus %s not given to us", have, n->gpu[0].model,
                   withheld, plural(withheld, "is", "are"));
    } else {
        finding_ok(f, "%u x %s", have, n->gpu[0].model);
    }
}

void check_handle(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);

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
                        RESET_HINT, "%s: %s", g->name, nvml_error(n, rc));
        }
    }
    if (n != NULL) {
        finding_ok(f, "%u %s", n->n, plural(n->n, "GPU answers", "GPUs answer"));
    }
}

/* --- memory that fails --------------------------------------------------------------------------------------------------- */

void check_ecc(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned long long now = 0, ever = 0;

        if (n->DeviceGetTotalEccErrors(g->dev, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &now) !=
            NVML_DONE) {
            continue;
        }
        told++;
        if (now > 0) {
            finding_bad(f, "ECC_VOLATILE", RESET_HINT,
                        "%s: %llu uncorrected ECC errors since the driver was loaded", g->name,
                        now);
        }
        if (n->DeviceGetTotalEccErrors(g->dev, NVML_ECC_UNCORRECTED, NVML_ECC_AGGREGATE, &ever) ==
                NVML_DONE &&
            ever > now) {
            finding_warn(f, "ECC_AGGREGATE",
                         "watch it: `remap` tells whether its rows could be replaced",
                         "%s: %llu uncorrected ECC errors in its life", g->name, ever);
        }
    }
    told_by(f, told, "no uncorrected ECC errors");
}

void check_remap(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;

        if (n->DeviceGetRemappedRows(g->dev, &corrected, &uncorrected, &pending, &failed) !=
            NVML_DONE) {
            continue;
        }
        told++;
        if (failed != 0) {
            finding_bad(f, "REMAP_FAILED",
                        "the GPU goes back: it has no rows left to replace bad ones",
                        "%s: a row of memory could not be replaced", g->name);
        } else if (pending != 0) {
            finding_bad(
                f, "REMAP_PENDING",
                "drain the node and reset the GPU (nvidia-smi -r): the row is replaced then",
                "%s: a bad row of memory waits to be replaced", g->name);
        }
    }
    told_by(f, told, "no row of memory waits to be replaced");
}

void check_retired(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned pending = 0;

        if (n->DeviceGetRetiredPagesPendingStatus(g->dev, &pending) != NVML_DONE) {
            continue;
        }
        told++;
        if (pending != 0) {
            finding_bad(
                f, "PAGES_PENDING",
                "drain the node and reset the GPU (nvidia-smi -r): the pages are retired then",
                "%s: bad pages of memory wait to be retired", g->name);
        }
    }
    told_by(f, told, "no page waits to be retired");
}

/* --- speed ----------------------------------------------------------------------------------------------------------------- */

void check_throttle(struct look *l, struct finding *f)
{
    static const struct {
        unsigned bit;
        const char *what;
    } hard[] = {{NVML_HW_THERMAL, "too hot"},
                {NVML_POWER_BRAKE, "the machine's power supply brakes it"},
                {NVML_HW_SLOWDOWN, "a slowdown by hardware"}};
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned long long bits = 0;
        bool named = false;

        if (n->DeviceGetCurrentClocksThrottleReasons(g->dev, &bits) != NVML_DONE) {
            continue;
        }
        told++;
        for (size_t i = 0; i < ARRAY_LEN(hard) && !named;
             i++) { /* the last one comes with the others */
            if ((bits & hard[i].bit) != 0) {
                named = true;
                finding_bad(
                    f, "THROTTLED",
                    "look at cooling, power supplies and cables; one slow GPU slows the whole job",
                    "%s: its clocks are held low, %s", g->name, hard[i].what);
            }
        }
        if (!named && (bits & NVML_SW_THERMAL) != 0) {
            finding_warn(f, "THROTTLED", "look at cooling; one slow GPU slows the whole job",
                         "%s: its clocks are held low, near its limit of temperature", g->name);
        }
    }
    told_by(f, told, "none is slowed down");
}

void check_temperature(struct look *l, struct finding *f)
{
    enum { USUAL_LIMIT = 90, NEAR = 5 };
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0, hottest = 0;
    char text[32];

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned celsius = 0, limit = 0;

        if (n->DeviceGetTemperature(g->dev, NVML_TEMPERATURE_GPU, &celsius) != NVML_DONE) {
            continue;
        }
        told++;
        hottest = celsius > hottest ? celsius : hottest;
        if (n->DeviceGetTemperatureThreshold(g->dev, NVML_THRESHOLD_SLOWDOWN, &limit) !=
                NVML_DONE ||
            limit == 0) {
            limit = USUAL_LIMIT;
        }
        if (celsius >= limit) {
            finding_bad(f, "HOT", "look at cooling and fans",
                        "%s: %u C, it slows down from %u C on", g->name, celsius, limit);
        } else if (celsius + NEAR >= limit) {
            finding_warn(f, "WARM", "look at cooling and fans",
                         "%s: %u C, it slows down from %u C on", g->name, celsius, limit);
        }
    }
    snprintf(text, sizeof text, "%u C at most", hottest);
    told_by(f, told, text);
}

void check_pcie(struct look *l, struct finding *f)
{
    enum {
        BUSY = 2
    }; /* performance states above it are idle ones, in which the link is slowed to save power */
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned width = 0, most = 0, gen = 0, top = 0, state = BUSY;
        bool known;

        if (n->DeviceGetCurrPcieLinkWidth(g->dev, &width) != NVML_DONE ||
            n->DeviceGetMaxPcieLinkWidth(g->dev, &most) != NVML_DONE) {
            continue;
        }
        told++;
        /* Which state it is in may not be told: the width is judged then, as GPUs for servers keep it. */
        known = n->DeviceGetPerformanceState(g->dev, &state) == NVML_DONE;
        if (width < most && state <= BUSY) {
            finding_bad(f, "PCIE_NARROW",
                        "reseat the GPU or its riser, look at the slot's settings",
                        "%s: x%u of x%u PCIe lanes", g->name, width, most);
        }
        if (known && state <= BUSY &&
            n->DeviceGetCurrPcieLinkGeneration(g->dev, &gen) == NVML_DONE &&
            n->DeviceGetMaxPcieLinkGeneration(g->dev, &top) == NVML_DONE && gen < top) {
            finding_bad(f, "PCIE_SLOW", "reseat the GPU or its riser, look at the slot's settings",
                        "%s: PCIe generation %u of %u", g->name, gen, top);
        }
    }
    told_by(f, told, "PCIe links as wide as they can be");
}

/* --- modes ----------------------------------------------------------------------------------------------------------------- */

void check_persistence(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned on = 0;

        if (n->DeviceGetPersistenceMode(g->dev, &on) != NVML_DONE) {
            continue;
        }
        told++;
        if (on == 0) {
            finding_bad(
                f, "PERSISTENCE_OFF",
                "enable nvidia-persistenced: else each job waits for the driver to wake its GPUs",
                "%s: persistence mode is off", g->name);
        }
    }
    told_by(f, told, "persistence mode is on");
}

void check_compute_mode(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        unsigned mode = 0;

        if (n->DeviceGetComputeMode(g->dev, &mode) != NVML_DONE) {
            continue;
        }
        told++;
        if (mode == NVML_COMPUTE_PROHIBITED) {
            finding_bad(f, "COMPUTE_PROHIBITED", "nvidia-smi -c DEFAULT",
                        "%s: its compute mode lets nobody compute", g->name);
        }
    }
    told_by(f, told, "compute mode lets us in");
}

void check_gpu_memory(struct look *l, struct finding *f)
{
    static const uint64_t little = UINT64_C(512) << 20; /* what a driver and its daemons hold */
    const struct nvml *n = nvml_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        struct nvml_memory m = {NVML_MEMORY_2, 0, 0, 0, 0};
        char used[UNITS_TEXT];
        unsigned processes = 0;
        int rc;

        if (n->DeviceGetMemoryInfo_v2(g->dev, &m) != NVML_DONE) {
            continue;
        }
        told++;
        if (m.used < little) {
            continue;
        }
        size_format(m.used, used);
        rc = n->DeviceGetComputeRunningProcesses_v3(g->dev, &processes, NULL);
        if (rc != NVML_DONE && rc != NVML_TOO_SMALL) {
            processes = 0;
        }
        finding_bad(f, "GPU_IN_USE",
                    "end what an earlier job has left there (nvidia-smi, fuser /dev/nvidia*)",
                    "%s: %s of its memory is in use by %u %s", g->name, used, processes,
                    plural(processes, "process", "processes"));
    }
    told_by(f, told, "memory is free");
}

/* --- between GPUs ------------------------------------------------------------------------------------------------------------ */

/* -1: it tells nothing. */
static int links_up(const struct nvml *n, const struct nvml_gpu *g)
{
    int up = -1;

    for (unsigned i = 0; i < NVML_LINKS; i++) {
        unsigned on = 0;
        if (n->DeviceGetNvLinkState(g->dev, i, &on) == NVML_DONE) {
            up = (up < 0 ? 0 : up) + (on != 0);
        }
    }
    return up;
}

static int most_up(const struct nvml *n, const struct nvml_gpu *g, const int *up)
{
    int most = -1;

    for (unsigned i = 0; i < n->n; i++) {
        if (n->gpu[i].dev != NULL && strcmp(n->gpu[i].model, g->model) == 0) {
            most = up[i] > most ? up[i] : most;
        }
    }
    return most;
}

/* Which links are wired is the board's matter, so a GPU is laid beside its fellows of the same model. One without any may have no
 * bridge, and is sick where NVSwitches connect all. */
static void judge_links(const struct look *l, const struct nvml *n, const int *up,
                        struct finding *f)
{
    static const char hint[] = "look at the kernel's log for Xid 74; " RESET_HINT;
    uint64_t want = 0;
    bool expected = expect_u64(&l->expect, EXPECT_nvlinks, &want);
    struct pci_gpus bus;

    pci_gpus(&l->sight, &bus);
    EACH_GPU(n, g)
    {
        int have = up[g - n->gpu];
        uint64_t here = have > 0 ? (uint64_t)have : 0;
        int most = most_up(n, g, up);

        if (expected && here < want) {
            finding_bad(f, "NVLINK_DOWN", hint, "%s: %" PRIu64 " of %" PRIu64 " NVLinks are up",
                        g->name, here, want);
        } else if (!expected && have >= 0 && have < most && (have > 0 || bus.switches > 0)) {
            finding_bad(f, "NVLINK_DOWN", hint, "%s: %d of %d NVLinks are up", g->name, have, most);
        } else if (!expected && have == 0 && most > 0) {
            finding_warn(
                f, "NVLINK_NONE",
                "is it bridged to another; nvlinks = N in preflight.conf says how many it has",
                "%s: no NVLink is up, of another GPU %d are", g->name, most);
        }
    }
}

void check_nvlink(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);
    int up[NVML_GPUS] = {0}, most = -1, least = INT_MAX;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        int here = links_up(n, g);
        up[g - n->gpu] = here;
        most = here > most ? here : most;
        least = here < least ? here : least;
    }
    judge_links(l, n, up, f);
    if (most <= 0) {
        finding_skip(f, most == 0 ? "no NVLink is in use" : "no GPU here has NVLink");
    } else if (least == most) {
        finding_ok(f, "%d NVLinks up on each GPU", most);
    } else {
        finding_ok(f, "%d NVLinks up at most, alike on GPUs of one model", most);
    }
}

static bool manager_runs(const struct sight *s)
{
    DIR *d = sight_dir(s, "/proc");
    bool found = false;

    for (struct dirent *it; d != NULL && !found && (it = readdir(d)) != NULL;) {
        char path[PATH_MAX], name[SIGHT_TEXT];

        if (it->d_name[0] >= '0' && it->d_name[0] <= '9') {
            snprintf(path, sizeof path, "/proc/%.20s/comm", it->d_name);
            found = sight_read(s, path, name, NULL) == 0 &&
                    strcmp(name, "nv-fabricmanage") == 0; /* the kernel keeps 15 letters */
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return found;
}

void check_fabric(struct look *l, struct finding *f)
{
    const struct nvml *n = nvml_of(l, f);
    struct pci_gpus bus;
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        struct nvml_fabric fabric = {{0}, 0, 0, 0};

        if (n->DeviceGetGpuFabricInfo(g->dev, &fabric) != NVML_DONE ||
            fabric.state == NVML_FABRIC_NONE) {
            continue;
        }
        told++;
        if (fabric.state != NVML_FABRIC_DONE || fabric.status != NVML_DONE) {
            finding_bad(
                f, "FABRIC",
                "systemctl status nvidia-fabricmanager: of the driver's own version; then its log",
                "%s: %s", g->name,
                fabric.state != NVML_FABRIC_DONE ? "it has not joined the NVSwitch fabric"
                                                 : nvml_error(n, fabric.status));
        }
    }
    pci_gpus(&l->sight, &bus);
    if (told == 0 && bus.switches > 0 &&
        !manager_runs(&l->sight)) { /* before Hopper no GPU tells */
        finding_warn(f, "FABRIC",
                     "systemctl status nvidia-fabricmanager (a container does not see it)",
                     "%u %s, and no fabric manager in sight", bus.switches,
                     plural(bus.switches, "NVSwitch", "NVSwitches"));
    } else if (told == 0 && bus.switches == 0) {
        finding_skip(f, "no NVSwitch");
    }
    finding_ok(f,
               told > 0 ? "all GPUs have joined the NVSwitch fabric" : "the fabric manager runs");
}
