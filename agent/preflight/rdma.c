#include "agent/preflight/rdma.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include "agent/preflight/look.h"
#include "agent/preflight/pci.h"

#define DEVICES "/sys/class/infiniband"

enum { PORTS = 64 };

bool rdma_is(const struct sight *s)
{
    DIR *d = sight_dir(s, DEVICES);
    bool any = false;

    for (struct dirent *it; d != NULL && (it = readdir(d)) != NULL;) {
        any = any || it->d_name[0] != '.';
    }
    if (d != NULL) {
        closedir(d);
    }
    return any;
}

/* "4: ACTIVE" */
static void read_port_word(const struct sight *s, const char *port, const char *file, char *out,
                           size_t room)
{
    char path[PATH_MAX], text[SIGHT_TEXT];
    struct slice rest;

    snprintf(path, sizeof path, "%s/%s", port, file);
    out[0] = '\0';
    if (sight_read(s, path, text, NULL) == 0) {
        rest = slice_str(text);
        slice_cut(&rest, ':');
        rest = slice_trim(rest);
        snprintf(out, room, SLICE_FMT, SLICE_ARG(rest));
    }
}

static void read_port(const struct sight *s, const char *device, const char *number,
                      struct rdma_port *p)
{
    char port[PATH_MAX], path[PATH_MAX + 16], text[SIGHT_TEXT];

    *p = (struct rdma_port){0};
    snprintf(p->name, sizeof p->name, "%.32s/%.8s", device, number);
    snprintf(port, sizeof port, DEVICES "/%.64s/ports/%.16s", device, number);
    read_port_word(s, port, "state", p->state, sizeof p->state);
    read_port_word(s, port, "phys_state", p->phys, sizeof p->phys);
    snprintf(path, sizeof path, "%s/link_layer", port);
    if (sight_read(s, path, text, NULL) == 0) {
        p->ethernet = strcmp(text, "Ethernet") == 0;
        p->infiniband = strcmp(text, "InfiniBand") == 0;
    }
    snprintf(path, sizeof path, "%s/rate", port); /* "400 Gb/sec (4X NDR)" */
    if (!sight_u64(s, path, &p->gbits)) {
        p->gbits = 0;
    }
}

static int compare_rdma_names(const void *a, const void *b)
{
    return strcmp(((const struct rdma_port *)a)->name, ((const struct rdma_port *)b)->name);
}

size_t rdma_ports(const struct sight *s, struct rdma_port *out, size_t room)
{
    DIR *devices = sight_dir(s, DEVICES);
    size_t n = 0;

    for (struct dirent *it; devices != NULL && (it = readdir(devices)) != NULL;) {
        char path[PATH_MAX];
        DIR *ports;

        if (it->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, DEVICES "/%.64s/ports", it->d_name);
        ports = sight_dir(s, path);
        for (struct dirent *port; ports != NULL && n < room && (port = readdir(ports)) != NULL;) {
            if (port->d_name[0] != '.') {
                read_port(s, it->d_name, port->d_name, &out[n++]);
            }
        }
        if (ports != NULL) {
            closedir(ports);
        }
    }
    if (devices != NULL) {
        closedir(devices);
    }
    qsort(out, n, sizeof out[0], compare_rdma_names);
    return n;
}

/* --- the checks ------------------------------------------------------------------------------- */

#define IB_HINT   "check cables, switch and subnet manager (ibstat)"
#define SLOW_HINT "check the cable and the switch port (mlxlink, ibdiagnet)"

struct ports {
    struct rdma_port port[PORTS];
    size_t n;
    uint64_t active, fast; /* fast: those that reach ib_rate */
    uint64_t fastest;      /* of InfiniBand */
};

static bool is_active(const struct rdma_port *p)
{
    return strcmp(p->state, "ACTIVE") == 0;
}

static void read_ports(const struct look *l, struct ports *ps)
{
    uint64_t rate = 0;

    *ps = (struct ports){.n = 0};
    ps->n = rdma_ports(&l->sight, ps->port, PORTS);
    expect_u64(&l->expect, EXPECT_ib_rate, &rate);
    for (size_t i = 0; i < ps->n; i++) {
        const struct rdma_port *p = &ps->port[i];
        if (is_active(p)) {
            ps->active++;
            ps->fast += p->gbits >= rate;
            ps->fastest = p->ethernet ? ps->fastest : max_u64(ps->fastest, p->gbits);
        }
    }
}

/* Ports without a cable are usual; one with a link that no subnet manager has raised is not. */
static void judge_links(const struct ports *ps, struct finding *f)
{
    for (size_t i = 0; i < ps->n; i++) {
        const struct rdma_port *p = &ps->port[i];
        if (!is_active(p) && strcmp(p->phys, "LinkUp") == 0) {
            finding_bad(
                f, "IB_INACTIVE",
                "check that the subnet manager runs and that the port is admitted to the fabric",
                "%s has a link, but its state is %s", p->name, p->state);
        }
    }
}

/* A port for storage or administration may well be slower than the others. The number of fast
 * ports shows whether the fabric is complete, and a single slow port is only a warning. Ethernet
 * of any speed is ordinary. */
static void judge_rates(const struct look *l, const struct ports *ps, struct finding *f)
{
    uint64_t rate = ps->fastest, want = 1;
    bool rated = expect_u64(&l->expect, EXPECT_ib_rate, &rate);
    bool counted = expect_u64(&l->expect, EXPECT_ib_ports, &want);

    if (rated && ps->n > 0 && ps->fast < want && !(counted && ps->active < want)) {
        finding_bad(f, "IB_SLOW", SLOW_HINT,
                    "%" PRIu64 " of %" PRIu64 " expected ports run at %" PRIu64 " Gb/s", ps->fast,
                    want, rate);
    } else if (rated && counted) {
        return; /* there are enough of them */
    }
    for (size_t i = 0; i < ps->n; i++) {
        const struct rdma_port *p = &ps->port[i];
        if (is_active(p) && !p->ethernet && p->gbits < rate) {
            finding_warn(f, "IB_SLOW", SLOW_HINT, "%s runs at %" PRIu64 " Gb/s, %s %" PRIu64,
                         p->name, p->gbits,
                         rated ? "expected at least" : "but another port of this node at", rate);
        }
    }
}

void check_ib(struct look *l, struct finding *f)
{
    struct ports ps;
    uint64_t want = 0;
    bool expected = expect_u64(&l->expect, EXPECT_ib_ports, &want);

    read_ports(l, &ps);
    judge_links(&ps, f);
    judge_rates(l, &ps, f);
    if (expected && ps.active < want) {
        finding_bad(f, "IB_PORTS", IB_HINT, "%" PRIu64 " of %" PRIu64 " expected ports are active",
                    ps.active, want);
    } else if (ps.n == 0) {
        finding_skip(f, "no RDMA device");
    } else if (ps.active == 0) {
        finding_warn(f, "IB_PORTS", IB_HINT, "none of %zu ports is active", ps.n);
    }
    finding_ok(f, "%" PRIu64 " of %zu ports active", ps.active, ps.n);
}

void check_peermem(struct look *l, struct finding *f)
{
    char version[SIGHT_TEXT], release[SIGHT_TEXT];
    struct pci_gpus g;

    pci_gpus(&l->sight, &g);
    if (g.n == 0 || !rdma_is(&l->sight)) {
        finding_skip(f, g.n == 0 ? "no NVIDIA GPU on the bus" : "no RDMA device");
        return;
    }
    if (sight_is(&l->sight, "/sys/module/nvidia_peermem") ||
        sight_is(&l->sight, "/sys/module/nv_peer_mem")) {
        finding_ok(f, "nvidia_peermem is loaded");
        return;
    }
    /* The open modules export dma-buf, which verbs take from Linux 5.12 on. */
    if (sight_read(&l->sight, "/proc/driver/nvidia/version", version, NULL) == 0 &&
        strstr(version, "Open Kernel Module") != NULL &&
        sight_read(&l->sight, "/proc/sys/kernel/osrelease", release, NULL) == 0 &&
        version_cmp(release, "5.12") >= 0) {
        finding_ok(f, "dma-buf (open kernel modules, Linux %.40s)", release);
        return;
    }
    finding_bad(f, "NO_PEERMEM",
                "load nvidia_peermem now (modprobe) and at each boot (/etc/modules-load.d)",
                "neither nvidia_peermem nor dma-buf is available: RDMA copies through host memory");
}
