#include "agent/preflight/numa.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

#include "agent/preflight/pci.h"
#include "agent/preflight/rdma.h"
#include "common/codec/jwrite.h"

struct near {
    char what[56];  /* "gpu 0000:5e:00.0", "rdma mlx5_0" */
    char node[16];  /* "0"; "-" where the machine does not tell */
    char cpus[160]; /* as the kernel lists them */
    unsigned ours;  /* how many of them we may use */
    unsigned all;
};

static void read_near(const struct sight *s, const char *folder, struct near *n)
{
    char path[PATH_MAX], text[SIGHT_TEXT];
    cpu_set_t ours;

    CPU_ZERO(&ours);
    sched_getaffinity(0, sizeof ours, &ours);
    snprintf(path, sizeof path, "%s/numa_node", folder);
    snprintf(n->node, sizeof n->node, "%.15s",
             sight_read(s, path, text, NULL) == 0 && text[0] != '-' && text[0] != '\0' ? text
                                                                                       : "-");
    snprintf(path, sizeof path, "%s/local_cpulist", folder);
    if (sight_read(s, path, text, NULL) != 0) {
        text[0] = '\0';
    }
    snprintf(n->cpus, sizeof n->cpus, "%.159s", text);
    for (unsigned c = 0; c < CPU_SETSIZE; c++) {
        bool local = list_has(slice_str(text), c);
        n->all += local;
        n->ours += local && CPU_ISSET(c, &ours);
    }
}

/* At most one of each device: ports of one share its place. */
static size_t find_all(const struct sight *s, struct near *out, size_t room)
{
    struct rdma_port port[64];
    struct pci_gpus g;
    size_t n = 0, ports = rdma_ports(s, port, ARRAY_LEN(port));
    char folder[PATH_MAX];

    pci_gpus(s, &g);
    for (size_t i = 0; i < g.n && n < room; i++) {
        out[n] = (struct near){0};
        snprintf(out[n].what, sizeof out[n].what, "gpu %s", g.gpu[i].name);
        snprintf(folder, sizeof folder, "/sys/bus/pci/devices/%s", g.gpu[i].name);
        read_near(s, folder, &out[n++]);
    }
    for (size_t i = 0; i < ports && n < room; i++) {
        int name = (int)strcspn(port[i].name, "/");

        out[n] = (struct near){0};
        snprintf(out[n].what, sizeof out[n].what, "rdma %.*s", name, port[i].name);
        if (n > 0 && strcmp(out[n].what, out[n - 1].what) == 0) {
            continue;
        }
        snprintf(folder, sizeof folder, "/sys/class/infiniband/%.*s/device", name, port[i].name);
        read_near(s, folder, &out[n++]);
    }
    return n;
}

void numa_table(const struct sight *s, struct buf *out)
{
    struct near near[128];
    size_t n = find_all(s, near, ARRAY_LEN(near));

    if (n == 0) {
        buf_str(out, "\nno GPU and no RDMA device to place\n");
        return;
    }
    buf_addf(out, "\n%-22s %-5s %-24s %s\n", "DEVICE", "NODE", "LOCAL CPUS", "OURS AMONG THEM");
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "%-22s %-5s %-24s %u of %u\n", near[i].what, near[i].node, near[i].cpus,
                 near[i].ours, near[i].all);
    }
}

void numa_json(const struct sight *s, struct buf *out)
{
    struct near near[128];
    size_t n = find_all(s, near, ARRAY_LEN(near));

    jwrite_open(out, "numa", '[');
    for (size_t i = 0; i < n; i++) {
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "device", near[i].what);
        jwrite_str(out, "node", near[i].node);
        jwrite_str(out, "local_cpus", near[i].cpus);
        jwrite_u64(out, "ours", near[i].ours);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}
