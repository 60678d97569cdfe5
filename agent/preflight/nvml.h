/* nvml.h - NVIDIA's management library, libnvidia-ml.so.1, if it is present: it comes with the
 * driver, and needs no header.
 *
 * This file declares the functions that we call, under the versions that drivers have had since
 * 2020 (R450). A function that a driver lacks returns NVML_NO_FUNCTION, as NVML's own functions
 * do if a GPU lacks something. nvmlInit_v2() opens no GPU, so a sick one shows at its own handle.
 * Any call may hang while a GPU does, so call it only in a process that can be killed
 * (preflight.h). Of running processes only the number is read: the struct of that function has
 * changed under one name.
 *
 * owns     nvml_open() has no counterpart: the checking process ends instead, because
 *          nvmlShutdown() may hang too
 * errors   E_NOTFOUND: no such library; E_UNSUPPORTED: it lacks a function that we need; E_IO: it
 *          does not start, with its message
 * source   docs.nvidia.com/deploy/nvml-api
 */
#ifndef AGENT_PREFLIGHT_NVML_H
#define AGENT_PREFLIGHT_NVML_H

#include "common/base/err.h"

enum {
    NVML_DONE = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_TOO_SMALL = 7,
    NVML_NO_DRIVER = 9,
    NVML_NO_FUNCTION = 13,
    NVML_LOST = 15,
    NVML_RESET = 16,
    NVML_MISMATCH = 18,
};

enum {
    NVML_GPUS = 64,
    NVML_LINKS = 36,
    NVML_ECC_UNCORRECTED = 1,
    NVML_ECC_VOLATILE = 0,
    NVML_ECC_AGGREGATE = 1
};
enum {
    NVML_TEMPERATURE_GPU = 0,
    NVML_THRESHOLD_SLOWDOWN = 1,
    NVML_FABRIC_NONE = 0,
    NVML_FABRIC_DONE = 3
};
enum { NVML_COMPUTE_PROHIBITED = 2 };

/* Why the clocks are low: bits. */
enum {
    NVML_HW_SLOWDOWN = 0x08,
    NVML_SW_THERMAL = 0x20,
    NVML_HW_THERMAL = 0x40,
    NVML_POWER_BRAKE = 0x80,
};

struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device;
    unsigned id, subsystem;
    char name[32];
};

struct nvml_memory { /* version 2: memory that the driver reserves is not in `used` */
    unsigned version;
    unsigned long long total, reserved, free, used;
};

#define NVML_MEMORY_2 ((unsigned)(sizeof(struct nvml_memory) | 2u << 24))

struct nvml_fabric {
    char cluster[16];
    int status; /* valid when the state is NVML_FABRIC_DONE */
    unsigned clique;
    unsigned char state;
};

typedef void nvml_dev;

#define NVML_CALLS(CALL)                                                                           \
    CALL(Init_v2, (void))                                                                          \
    CALL(SystemGetDriverVersion, (char *text, unsigned room))                                      \
    CALL(SystemGetCudaDriverVersion_v2, (int *version))                                            \
    CALL(DeviceGetCount_v2, (unsigned *n))                                                         \
    CALL(DeviceGetHandleByIndex_v2, (unsigned i, nvml_dev **d))                                    \
    CALL(DeviceGetPciInfo_v3, (nvml_dev * d, struct nvml_pci * p))                                 \
    CALL(DeviceGetName, (nvml_dev * d, char *text, unsigned room))                                 \
    CALL(DeviceGetTotalEccErrors, (nvml_dev * d, int type, int counter, unsigned long long *n))    \
    CALL(DeviceGetRemappedRows, (nvml_dev * d, unsigned *corrected, unsigned *uncorrected,         \
                                 unsigned *pending, unsigned *failed))                             \
    CALL(DeviceGetRetiredPagesPendingStatus, (nvml_dev * d, unsigned *pending))                    \
    CALL(DeviceGetCurrentClocksThrottleReasons, (nvml_dev * d, unsigned long long *bits))          \
    CALL(DeviceGetTemperature, (nvml_dev * d, int sensor, unsigned *celsius))                      \
    CALL(DeviceGetTemperatureThreshold, (nvml_dev * d, int which, unsigned *celsius))              \
    CALL(DeviceGetPerformanceState, (nvml_dev * d, unsigned *state))                               \
    CALL(DeviceGetCurrPcieLinkGeneration, (nvml_dev * d, unsigned *v))                             \
    CALL(DeviceGetMaxPcieLinkGeneration, (nvml_dev * d, unsigned *v))                              \
    CALL(DeviceGetCurrPcieLinkWidth, (nvml_dev * d, unsigned *v))                                  \
    CALL(DeviceGetMaxPcieLinkWidth, (nvml_dev * d, unsigned *v))                                   \
    CALL(DeviceGetPersistenceMode, (nvml_dev * d, unsigned *on))                                   \
    CALL(DeviceGetComputeMode, (nvml_dev * d, unsigned *mode))                                     \
    CALL(DeviceGetMigMode, (nvml_dev * d, unsigned *now, unsigned *pending))                       \
    CALL(DeviceGetNvLinkState, (nvml_dev * d, unsigned link, unsigned *up))                        \
    CALL(DeviceGetMemoryInfo_v2, (nvml_dev * d, struct nvml_memory * m))                           \
    CALL(DeviceGetComputeRunningProcesses_v3, (nvml_dev * d, unsigned *n, void *room))             \
    CALL(DeviceGetGpuFabricInfo, (nvml_dev * d, struct nvml_fabric * f))

struct nvml_gpu {
    nvml_dev *dev; /* NULL: no handle, and rc says why */
    int rc;        /* of its handle */
    char name[40]; /* "GPU 3 (0000:5e:00.0)" */
    char bdf[16];  /* "" if unknown */
    char model[64];
};

struct nvml {
#define CALL(call, args) int(*call) args;
    NVML_CALLS(CALL)
#undef CALL
    const char *(*ErrorString)(int rc);
    char driver[80];
    int cuda; /* 12040; 0 if unknown */
    struct nvml_gpu gpu[NVML_GPUS];
    unsigned n;
};

MUST_USE int nvml_open(struct nvml **out, struct err *e);
const char *nvml_error(const struct nvml *n, int rc);

#endif
