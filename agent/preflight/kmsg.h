/* kmsg.h - parses the NVIDIA driver's messages in the kernel's log: Xid errors of GPUs, SXid
 * errors of NVSwitches, GPUs that are gone.
 *
 *   6,1234,5678901234,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off
 *   the bus.
 *   3,1235,5678901235,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46 LTSSM
 *   Fault Up
 *
 * A line is a record of /dev/kmsg: facility and level, number, microseconds since boot, flags;
 * then the text. Lines that begin with a blank belong to the record before. Only the kernel's own
 * records count, and only with the driver's text at the beginning: the log also has names that
 * users choose. xids.def explains the numbers.
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
    char device[20]; /* "0000:3b:00"; "" if not stated */
};

/* True: the line is about an NVIDIA device. */
MUST_USE bool kmsg_parse(struct slice line, struct kmsg *out);

/* The meaning of an Xid: NULL if it is not in the list; *node says whether the node is to blame,
 * and not the program. */
const char *xid_what(unsigned number, bool *node);

#endif
