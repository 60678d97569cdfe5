/* pci.h - lists the NVIDIA GPUs and NVSwitches on the PCI bus, whatever the driver says. */
#ifndef AGENT_PREFLIGHT_PCI_H
#define AGENT_PREFLIGHT_PCI_H

#include "agent/preflight/sight.h"

enum { PCI_GPUS = 64, PCI_NAME = 16 };

struct pci_gpu {
    char name[PCI_NAME]; /* "0000:5e:00.0" */
    char driver[32];     /* "nvidia"; "" without */
    bool silent;         /* its registers read as ones: it has fallen off the bus */
};

struct pci_gpus {
    struct pci_gpu gpu[PCI_GPUS];
    size_t n; /* without those that are handed to a virtual machine (vfio-pci) */
    size_t handed;
    unsigned switches;
    bool bus; /* there is a bus to read */
};

void pci_gpus(const struct sight *s, struct pci_gpus *out); /* ordered by name */

#endif
