/* numa.h - which CPUs and memory are near which GPU and RDMA device: for --explain. */
#ifndef AGENT_PREFLIGHT_NUMA_H
#define AGENT_PREFLIGHT_NUMA_H

#include "agent/preflight/sight.h"
#include "common/base/buf.h"

void numa_table(const struct sight *s, struct buf *out);
void numa_json(const struct sight *s,
               struct buf *out); /* a member "numa" of an object that is open */

#endif
