/* kmsg.h - what the NVIDIA driver has told the kernel's log: Xid errors of GPUs, SXid errors of
 * NVSwitches, GPUs that are gone.
 *
 *   6,1234,5678901234,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
 *   3,1235,5678901235,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46 LTSSM Fault Up
 *
 * A line is a record of /dev/kmsg: who speaks and level, number, microseconds since boot, flags;
 * then text. Lines that begin with a blank belong to the record before. Only the kernel's own
 * count, and only with the driver's words at their place from the first byte on: names that users
 * choose stand in the log too. What the numbers mean stands in xids.def.
 */
#ifndef AGENT_PREFLIGHT_KMSG_H
#define AGENT_PREFLIGHT_KMSG_H

#include "common/base/slice.h"

enum kmsg_kind { KMSG_XID, KMSG_SXID, KMSG_OFF_BUS, KMSG_NO_START };

struct kmsg {
    enum kmsg_kind kind;
    uint64_t at_us;  /* since boot */
    unsigned number; /* of an Xid or SXid */
    bool fatal;      /* SXid */
    char device[20]; /* "0000:3b:00"; "" when it is not told */
};

/* True: the line tells of an NVIDIA device. */
MUST_USE bool kmsg_parse(struct slice line, struct kmsg *out);

/* What an Xid means: NULL for one that is not in the list; *node is whether the node is to blame,
 * not the program. */
const char *xid_what(unsigned number, bool *node);

#endif
