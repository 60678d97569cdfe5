/* rdma.h - InfiniBand and RoCE devices as the kernel shows them in /sys/class/infiniband. */
#ifndef AGENT_PREFLIGHT_RDMA_H
#define AGENT_PREFLIGHT_RDMA_H

#include "agent/preflight/sight.h"

struct rdma_port {
    char name[48];  /* "mlx5_0/1" */
    char state[16]; /* "ACTIVE", "DOWN", "INIT", ... */
    char phys[20];  /* "LinkUp", "Polling", "Disabled", ... */
    bool ethernet;  /* RoCE */
    bool infiniband;
    uint64_t gbits; /* 0: unknown */
};

/* is there any device? */
bool rdma_is(const struct sight *s);
size_t rdma_ports(const struct sight *s, struct rdma_port *out, size_t room); /* ordered by name */

#endif
