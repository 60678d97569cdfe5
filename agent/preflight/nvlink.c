/* nvlink.c - what connects the GPUs: NVLinks, and the fabric of NVSwitches. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "agent/preflight/gpu.h"
#include "agent/preflight/pci.h"
#include "common/codec/units.h"

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

/* Which links are wired is the board's matter, so a GPU is laid beside its fellows of the same
 * model. One without any may have no bridge, and is sick where NVSwitches connect all. */
static void judge_links(const struct look *l, const struct nvml *n, const int *up,
                        struct finding *f)
{
    static const char hint[] = "check the kernel's log for Xid 74; " GPUS_RESET_HINT;
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
                "check its NVLink bridge; set nvlinks = N in preflight.conf to the number that "
                "it has",
                "%s: no NVLink is up, but another GPU has %d", g->name, most);
        }
    }
}

void check_nvlink(struct look *l, struct finding *f)
{
    const struct nvml *n = gpus_of(l, f);
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
        finding_skip(f, most == 0 ? "no NVLink is up" : "no GPU on this node has NVLink");
    } else if (least == most) {
        finding_ok(f, "%d NVLinks up on each GPU", most);
    } else {
        finding_ok(f, "up to %d NVLinks up, equally many on all GPUs of a model", most);
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
    const struct nvml *n = gpus_of(l, f);
    struct pci_gpus bus;
    unsigned reported = 0;

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
        reported++;
        if (fabric.state != NVML_FABRIC_DONE || fabric.status != NVML_DONE) {
            finding_bad(
                f, "FABRIC",
                "check systemctl status nvidia-fabricmanager (its version must be the driver's), "
                "then its log",
                "%s: %s", g->name,
                fabric.state != NVML_FABRIC_DONE ? "it has not joined the NVSwitch fabric"
                                                 : nvml_error(n, fabric.status));
        }
    }
    pci_gpus(&l->sight, &bus);
    if (reported == 0 && bus.switches > 0 &&
        !manager_runs(&l->sight)) { /* before Hopper no GPU tells */
        finding_warn(
            f, "FABRIC",
            "check systemctl status nvidia-fabricmanager (it is not visible in a container)",
            "%u %s, but no fabric manager is running", bus.switches,
            plural(bus.switches, "NVSwitch", "NVSwitches"));
    } else if (reported == 0 && bus.switches == 0) {
        finding_skip(f, "no NVSwitch");
    }
    finding_ok(f, reported > 0 ? "all GPUs have joined the NVSwitch fabric"
                               : "the fabric manager runs");
}
