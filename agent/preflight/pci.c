#include "agent/preflight/pci.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/preflight/look.h"

enum { NVIDIA = 0x10de, DISPLAY = 0x03, BRIDGE_OTHER = 0x0680 };

/* A device that is gone answers every read with ones; the kernel keeps its folder. */
static bool is_silent(const struct sight *s, const char *name)
{
    char path[PATH_MAX];
    uint8_t head[4];
    bool silent;
    int fd;

    if (!sight_path(s, path, "/sys/bus/pci/devices/%s/config", name)) {
        return false;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1) {
        return false;
    }
    silent = read(fd, head, sizeof head) == (ssize_t)sizeof head && head[0] == 0xff &&
             head[1] == 0xff && head[2] == 0xff && head[3] == 0xff;
    close(fd);
    return silent;
}

static void take_gpu(const struct sight *s, const char *name, struct pci_gpus *out)
{
    struct pci_gpu *g = &out->gpu[out->n];
    char path[128], driver[NAME_MAX + 1];

    *g = (struct pci_gpu){.silent = is_silent(s, name)};
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.40s/driver", name);
    if (sight_link(s, path, driver)) {
        snprintf(g->driver, sizeof g->driver, "%.31s", driver);
    }
    if (strcmp(g->driver, "vfio-pci") == 0) {
        out->handed++;
    } else {
        out->n++;
    }
}

static int compare_pci_names(const void *a, const void *b)
{
    return strcmp(((const struct pci_gpu *)a)->name, ((const struct pci_gpu *)b)->name);
}

void pci_gpus(const struct sight *s, struct pci_gpus *out)
{
    DIR *d = sight_dir(s, "/sys/bus/pci/devices");

    *out = (struct pci_gpus){.bus = d != NULL};
    for (struct dirent *it; d != NULL && (it = readdir(d)) != NULL && out->n < PCI_GPUS;) {
        char path[128];
        uint64_t vendor, class;

        if (it->d_name[0] == '.' || strlen(it->d_name) >= PCI_NAME) {
            continue;
        }
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.40s/vendor", it->d_name);
        if (!sight_u64(s, path, &vendor) || vendor != NVIDIA) {
            continue;
        }
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.40s/class", it->d_name);
        if (!sight_u64(s, path, &class)) {
            continue;
        }
        out->switches += class >> 8 == BRIDGE_OTHER;
        if (class >> 16 == DISPLAY) {
            take_gpu(s, it->d_name, out);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    qsort(out->gpu, out->n, sizeof out->gpu[0], compare_pci_names);
}

/* A card that only shows a picture has another driver, and nothing is wrong with it. */
static void no_driver(const struct look *l, const struct pci_gpu *g, struct finding *f)
{
    static const char hint[] = "load the driver (modprobe nvidia) and check the kernel's log";
    const char *of = g->driver[0] != '\0' ? "the driver " : "no driver";
    uint64_t want = 0;

    if ((expect_u64(&l->expect, EXPECT_gpus, &want) && want > 0) ||
        sight_is(&l->sight, "/sys/module/nvidia")) {
        finding_bad(f, "GPU_NO_DRIVER", hint, "the GPU at %s has %s%s", g->name, of, g->driver);
    } else {
        finding_warn(f, "GPU_NO_DRIVER", hint, "the GPU at %s has %s%s", g->name, of, g->driver);
    }
}

void check_bus(struct look *l, struct finding *f)
{
    struct pci_gpus g;

    pci_gpus(&l->sight, &g);
    for (size_t i = 0; i < g.n; i++) {
        if (g.gpu[i].silent) {
            finding_bad(
                f, "GPU_OFF_BUS",
                "drain the node and power-cycle it; return a GPU that fails again for replacement",
                "the GPU at %s has fallen off the bus", g.gpu[i].name);
        } else if (strcmp(g.gpu[i].driver, "nvidia") != 0) {
            no_driver(l, &g.gpu[i], f);
        }
    }
    if (!g.bus) {
        finding_skip(f, "no PCI bus is visible");
    } else if (g.n == 0) {
        finding_skip(f, "no NVIDIA GPU on the bus");
    }
    finding_ok(f, "%zu %s on the bus", g.n, g.n == 1 ? "GPU" : "GPUs");
}

/* --- which CPUs are near ---------------------------------------------------------------------- */

void check_affinity(struct look *l, struct finding *f)
{
    char path[128], list[SIGHT_TEXT];
    size_t far = 0, reported = 0;
    struct pci_gpus g;
    cpu_set_t ours;

    CPU_ZERO(&ours);
    pci_gpus(&l->sight, &g);
    if (g.n == 0 || sched_getaffinity(0, sizeof ours, &ours) == -1) {
        finding_skip(f, g.n == 0 ? "no NVIDIA GPU on the bus"
                                 : "the CPUs of this process could not be read");
        return;
    }
    for (size_t i = 0; i < g.n; i++) {
        bool near = false;

        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/local_cpulist", g.gpu[i].name);
        if (sight_read(&l->sight, path, list, NULL) != 0 || list[0] == '\0') {
            continue;
        }
        reported++;
        for (unsigned c = 0; c < CPU_SETSIZE && !near; c++) {
            near = CPU_ISSET(c, &ours) && list_has(slice_str(list), c);
        }
        far += !near;
    }
    if (reported == 0) {
        finding_skip(f, "the local CPUs of the GPUs could not be read");
    } else if (far == reported) {
        finding_bad(f, "CPUS_FAR",
                    "bind the job to CPUs on the GPUs' NUMA nodes; --explain lists them",
                    "no CPU of this process is local to any GPU");
    }
    finding_ok(f, "%zu of %zu %s local CPUs that this process may use", reported - far, reported,
               reported == 1 ? "GPU has" : "GPUs have");
}
