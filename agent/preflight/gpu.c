/* gpu.c - what each GPU tells of itself: its memory, its speed, its modes. */
#include "agent/preflight/gpu.h"

#include <stdio.h>

#include "common/codec/units.h"

/* --- the GPUs that NVML names, as the checks go through them.
 *
 * NVML is opened by the first check of a process that asks; where it does not start, or names no
 * GPU, a check is skipped and says why. */

const struct nvml *gpus_of(struct look *l, struct finding *f)
{
    if (!l->nvml_asked) {
        l->nvml_asked = true;
        l->nvml_rc = nvml_open(&l->nvml, &l->nvml_why);
    }
    if (l->nvml_rc != 0) {
        if (l->nvml_rc == E_NOTFOUND) {
            finding_skip(f, "no NVIDIA driver is available");
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

/* The summary of a check: so many GPUs have reported it. */
static void gpus_reported(struct finding *f, unsigned reported, const char *fine)
{
    if (reported == 0) {
        finding_skip(f, "no GPU on this node reports it");
    } else {
        finding_ok(f, "%u %s: %s", reported, plural(reported, "GPU", "GPUs"), fine);
    }
}

/* Asks each; ask() gives false where a GPU does not tell, which is skipped when it is all of them.
 * `fine`: what is so when nothing is wrong with those that tell. */
static void gpus_each(struct look *l, struct finding *f,
                      bool (*ask)(const struct nvml *n, const struct nvml_gpu *g,
                                  struct finding *f),
                      const char *fine)
{
    const struct nvml *n = gpus_of(l, f);
    unsigned reported = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        reported += ask(n, g, f);
    }
    gpus_reported(f, reported, fine);
}

/* --- the checks --- */

/* --- memory that fails ------------------------------------------------------------------------ */

static bool ask_ecc(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    unsigned long long now = 0, ever = 0;

    if (n->DeviceGetTotalEccErrors(g->dev, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &now) !=
        NVML_DONE) {
        return false;
    }
    if (now > 0) {
        finding_bad(f, "ECC_VOLATILE", GPUS_RESET_HINT,
                    "%s: %llu uncorrected ECC errors since the driver was loaded", g->name, now);
    }
    if (n->DeviceGetTotalEccErrors(g->dev, NVML_ECC_UNCORRECTED, NVML_ECC_AGGREGATE, &ever) ==
            NVML_DONE &&
        ever > now) {
        finding_warn(f, "ECC_AGGREGATE",
                     "watch the GPU; the check `remap` shows whether the rows could be replaced",
                     "%s: %llu uncorrected ECC errors in its lifetime", g->name, ever);
    }
    return true;
}

void check_ecc(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_ecc, "no uncorrected ECC errors");
}

static bool ask_remap(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;

    if (n->DeviceGetRemappedRows(g->dev, &corrected, &uncorrected, &pending, &failed) !=
        NVML_DONE) {
        return false;
    }
    if (failed != 0) {
        finding_bad(f, "REMAP_FAILED", "return the GPU for replacement: it has no spare rows left",
                    "%s: a bad row of memory could not be remapped", g->name);
    } else if (pending != 0) {
        finding_bad(f, "REMAP_PENDING",
                    "drain the node and reset the GPU (nvidia-smi -r); the reset remaps the row",
                    "%s: a bad row of memory is pending remapping", g->name);
    }
    return true;
}

void check_remap(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_remap, "no row of memory is pending remapping");
}

static bool ask_retired(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    unsigned pending = 0;

    if (n->DeviceGetRetiredPagesPendingStatus(g->dev, &pending) != NVML_DONE) {
        return false;
    }
    if (pending != 0) {
        finding_bad(f, "PAGES_PENDING",
                    "drain the node and reset the GPU (nvidia-smi -r); the reset retires the pages",
                    "%s: bad pages of memory are pending retirement", g->name);
    }
    return true;
}

void check_retired(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_retired, "no page is pending retirement");
}

/* --- speed ------------------------------------------------------------------------------------ */

static bool ask_throttle(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    static const struct {
        unsigned bit;
        const char *what;
    } hard[] = {{NVML_HW_THERMAL, "the hardware's thermal limit was reached"},
                {NVML_POWER_BRAKE, "the power brake of the machine's power supply is active"},
                {NVML_HW_SLOWDOWN, "the hardware slows it down"}};
    unsigned long long bits = 0;
    bool named = false;

    if (n->DeviceGetCurrentClocksThrottleReasons(g->dev, &bits) != NVML_DONE) {
        return false;
    }
    /* The last one comes with the others. */
    for (size_t i = 0; i < ARRAY_LEN(hard) && !named; i++) {
        if ((bits & hard[i].bit) != 0) {
            named = true;
            finding_bad(
                f, "THROTTLED",
                "check cooling, power supplies and cables; one slow GPU slows down the whole job",
                "%s: the clocks are reduced: %s", g->name, hard[i].what);
        }
    }
    if (!named && (bits & NVML_SW_THERMAL) != 0) {
        finding_warn(f, "THROTTLED", "check cooling; one slow GPU slows down the whole job",
                     "%s: the clocks are reduced because it is close to its temperature limit",
                     g->name);
    }
    return true;
}

void check_throttle(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_throttle, "no GPU is slowed down");
}

void check_temperature(struct look *l, struct finding *f)
{
    enum { USUAL_LIMIT = 90, NEAR = 5 };
    const struct nvml *n = gpus_of(l, f);
    unsigned reported = 0, hottest = 0;
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
        reported++;
        hottest = celsius > hottest ? celsius : hottest;
        if (n->DeviceGetTemperatureThreshold(g->dev, NVML_THRESHOLD_SLOWDOWN, &limit) !=
                NVML_DONE ||
            limit == 0) {
            limit = USUAL_LIMIT;
        }
        if (celsius >= limit) {
            finding_bad(f, "HOT", "check cooling and fans", "%s: %u C; it slows down at %u C",
                        g->name, celsius, limit);
        } else if (celsius + NEAR >= limit) {
            finding_warn(f, "WARM", "check cooling and fans", "%s: %u C; it slows down at %u C",
                         g->name, celsius, limit);
        }
    }
    snprintf(text, sizeof text, "the highest temperature is %u C", hottest);
    gpus_reported(f, reported, text);
}

static bool ask_pcie(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    /* Performance states above it are idle ones, in which the link is slowed to save power. */
    enum { BUSY = 2 };
    unsigned width = 0, most = 0, gen = 0, top = 0, state = BUSY;
    bool known;

    if (n->DeviceGetCurrPcieLinkWidth(g->dev, &width) != NVML_DONE ||
        n->DeviceGetMaxPcieLinkWidth(g->dev, &most) != NVML_DONE) {
        return false;
    }
    /* The state may be unknown: then the width is judged, because GPUs for servers keep it. */
    known = n->DeviceGetPerformanceState(g->dev, &state) == NVML_DONE;
    if (width < most && state <= BUSY) {
        finding_bad(f, "PCIE_NARROW",
                    "reseat the GPU or its riser and check the settings of the slot",
                    "%s: x%u of x%u PCIe lanes", g->name, width, most);
    }
    if (known && state <= BUSY && n->DeviceGetCurrPcieLinkGeneration(g->dev, &gen) == NVML_DONE &&
        n->DeviceGetMaxPcieLinkGeneration(g->dev, &top) == NVML_DONE && gen < top) {
        finding_bad(f, "PCIE_SLOW",
                    "reseat the GPU or its riser and check the settings of the slot",
                    "%s: PCIe generation %u of %u", g->name, gen, top);
    }
    return true;
}

void check_pcie(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_pcie, "the PCIe links have full width and speed");
}

/* --- modes ------------------------------------------------------------------------------------ */

static bool ask_persistence(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    unsigned on = 0;

    if (n->DeviceGetPersistenceMode(g->dev, &on) != NVML_DONE) {
        return false;
    }
    if (on == 0) {
        finding_bad(f, "PERSISTENCE_OFF",
                    "enable nvidia-persistenced; without it, each job waits until the driver has "
                    "initialised its GPUs",
                    "%s: persistence mode is off", g->name);
    }
    return true;
}

void check_persistence(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_persistence, "persistence mode is on");
}

static bool ask_compute_mode(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    unsigned mode = 0;

    if (n->DeviceGetComputeMode(g->dev, &mode) != NVML_DONE) {
        return false;
    }
    if (mode == NVML_COMPUTE_PROHIBITED) {
        finding_bad(f, "COMPUTE_PROHIBITED", "run nvidia-smi -c DEFAULT",
                    "%s: its compute mode prohibits all computation", g->name);
    }
    return true;
}

void check_compute_mode(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_compute_mode, "the compute mode admits programs");
}

static bool ask_gpu_memory(const struct nvml *n, const struct nvml_gpu *g, struct finding *f)
{
    static const uint64_t little = UINT64_C(512) << 20; /* what a driver and its daemons hold */
    struct nvml_memory m = {NVML_MEMORY_2, 0, 0, 0, 0};
    char used[UNITS_TEXT];
    unsigned processes = 0;
    int rc;

    if (n->DeviceGetMemoryInfo_v2(g->dev, &m) != NVML_DONE) {
        return false;
    }
    if (m.used < little) {
        return true;
    }
    size_format(m.used, used);
    rc = n->DeviceGetComputeRunningProcesses_v3(g->dev, &processes, NULL);
    if (rc != NVML_DONE && rc != NVML_TOO_SMALL) {
        processes = 0;
    }
    finding_bad(
        f, "GPU_IN_USE",
        "end the processes that an earlier job left behind (nvidia-smi, fuser /dev/nvidia*)",
        "%s: %s of its memory is in use by %u %s", g->name, used, processes,
        plural(processes, "process", "processes"));
    return true;
}

void check_gpu_memory(struct look *l, struct finding *f)
{
    gpus_each(l, f, ask_gpu_memory, "memory is free");
}
