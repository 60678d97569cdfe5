/* libnvidia-ml.so.1 of a node that is not there: well, or sick in each way that $FAKE_NVML names.
 *
 * "gpus=8;3.ecc=2;hang=DeviceGetName;5.lost=1": a number for all GPUs or for one. hang and crash
 * name a call, without "nvml"; "3.hang=..." is that call for GPU 3 alone. init is what
 * nvmlInit_v2() answers.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/preflight/nvml.h"

enum { ROOM = 64 };

struct gpu {
    unsigned i;
};

static struct gpu gpus[NVML_GPUS];

/* The text of a knob, for GPU i or all (-1); NULL: it is not set. */
static const char *knob(int i, const char *name, char out[ROOM])
{
    const char *all = getenv("FAKE_NVML");
    char one[ROOM];
    size_t n;

    snprintf(one, sizeof one, "%d.%s", i, name);
    for (int own = i >= 0; own >= 0 && all != NULL; own--) {
        const char *want = own ? one : name;
        for (const char *p = all; *p != '\0'; p += strcspn(p, ";"), p += *p == ';') {
            n = strlen(want);
            if (strncmp(p, want, n) == 0 && p[n] == '=') {
                snprintf(out, ROOM, "%.*s", (int)strcspn(p + n + 1, ";"), p + n + 1);
                return out;
            }
        }
    }
    return NULL;
}

static unsigned number(int i, const char *name, unsigned otherwise)
{
    char text[ROOM];

    return knob(i, name, text) != NULL ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* What happens in each call, before it answers. */
static int enter(const nvml_dev *d, const char *call)
{
    int i = d != NULL ? (int)((const struct gpu *)d)->i : -1;
    char text[ROOM];

    if (knob(i, "hang", text) != NULL && strcmp(text, call) == 0) {
        signal(SIGTERM, SIG_IGN);
        for (;;) {
            pause();
        }
    }
    if (knob(i, "crash", text) != NULL && strcmp(text, call) == 0) {
        abort();
    }
    if (knob(i, "none", text) != NULL && strcmp(text, call) == 0) {
        return NVML_NOT_SUPPORTED;
    }
    return d != NULL && number(i, "lost", 0) != 0 ? NVML_LOST : NVML_DONE;
}

#define ENTER(d, call)                                                                             \
    do {                                                                                           \
        int rc_ = enter(d, call);                                                                  \
        if (rc_ != NVML_DONE) {                                                                    \
            return rc_;                                                                            \
        }                                                                                          \
    } while (0)

#define CALL(call, args) int nvml##call args;
NVML_CALLS(CALL)
#undef CALL
const char *nvmlErrorString(int rc);

static int of(const nvml_dev *d)
{
    return (int)((const struct gpu *)d)->i;
}

const char *nvmlErrorString(int rc)
{
    return rc == NVML_LOST        ? "GPU is lost"
           : rc == NVML_MISMATCH  ? "Driver/library version mismatch"
           : rc == NVML_NO_DRIVER ? "Driver Not Loaded"
           : rc == NVML_RESET     ? "GPU requires reset"
                                  : "Unknown Error";
}

int nvmlInit_v2(void)
{
    ENTER(NULL, "Init_v2");
    return (int)number(-1, "init", NVML_DONE);
}

int nvmlSystemGetDriverVersion(char *text, unsigned room)
{
    char own[ROOM];

    ENTER(NULL, "SystemGetDriverVersion");
    snprintf(text, room, "%s", knob(-1, "driver", own) != NULL ? own : "550.54.15");
    return NVML_DONE;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = (int)number(-1, "cuda", 12040);
    return NVML_DONE;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    ENTER(NULL, "DeviceGetCount_v2");
    *n = number(-1, "gpus", 8);
    return NVML_DONE;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, nvml_dev **d)
{
    int rc = (int)number((int)i, "handle", NVML_DONE);

    gpus[i].i = i;
    *d = &gpus[i];
    return rc;
}

int nvmlDeviceGetPciInfo_v3(nvml_dev *d, struct nvml_pci *p)
{
    ENTER(d, "DeviceGetPciInfo_v3");
    memset(p, 0, sizeof *p);
    p->bus = 0x10 + number(of(d), "bus", (unsigned)of(d));
    return NVML_DONE;
}

int nvmlDeviceGetName(nvml_dev *d, char *text, unsigned room)
{
    char own[ROOM];

    ENTER(d, "DeviceGetName");
    snprintf(text, room, "%s", knob(of(d), "model", own) != NULL ? own : "NVIDIA Fake 80GB");
    return NVML_DONE;
}

int nvmlDeviceGetTotalEccErrors(nvml_dev *d, int type, int counter, unsigned long long *n)
{
    ENTER(d, "DeviceGetTotalEccErrors");
    *n = type != NVML_ECC_UNCORRECTED   ? 1000
         : counter == NVML_ECC_VOLATILE ? number(of(d), "ecc", 0)
                                        : number(of(d), "ecc_ever", number(of(d), "ecc", 0));
    return NVML_DONE;
}

int nvmlDeviceGetRemappedRows(nvml_dev *d, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    ENTER(d, "DeviceGetRemappedRows");
    *corrected = *uncorrected = 1;
    *pending = number(of(d), "remap_pending", 0);
    *failed = number(of(d), "remap_failed", 0);
    return NVML_DONE;
}

int nvmlDeviceGetRetiredPagesPendingStatus(nvml_dev *d, unsigned *pending)
{
    ENTER(d, "DeviceGetRetiredPagesPendingStatus");
    *pending = number(of(d), "retired", 0);
    return NVML_DONE;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(nvml_dev *d, unsigned long long *bits)
{
    ENTER(d, "DeviceGetCurrentClocksThrottleReasons");
    *bits = number(of(d), "throttle", 1); /* idle */
    return NVML_DONE;
}

int nvmlDeviceGetTemperature(nvml_dev *d, int sensor, unsigned *celsius)
{
    ENTER(d, "DeviceGetTemperature");
    *celsius = sensor == NVML_TEMPERATURE_GPU ? number(of(d), "celsius", 40) : 0;
    return NVML_DONE;
}

int nvmlDeviceGetTemperatureThreshold(nvml_dev *d, int which, unsigned *celsius)
{
    ENTER(d, "DeviceGetTemperatureThreshold");
    *celsius = which == NVML_THRESHOLD_SLOWDOWN ? 87 : 92;
    return NVML_DONE;
}

#define NUMBER(call, name, otherwise)                                                              \
    int nvml##call(nvml_dev *d, unsigned *v)                                                       \
    {                                                                                              \
        ENTER(d, #call);                                                                           \
        *v = number(of(d), name, otherwise);                                                       \
        return NVML_DONE;                                                                          \
    }
NUMBER(DeviceGetPerformanceState, "pstate", 0)
NUMBER(DeviceGetCurrPcieLinkGeneration, "gen", 5)
NUMBER(DeviceGetMaxPcieLinkGeneration, "gen_max", 5)
NUMBER(DeviceGetCurrPcieLinkWidth, "width", 16)
NUMBER(DeviceGetMaxPcieLinkWidth, "width_max", 16)
NUMBER(DeviceGetPersistenceMode, "persistence", 1)
NUMBER(DeviceGetComputeMode, "compute", 0)

int nvmlDeviceGetMigMode(nvml_dev *d, unsigned *now, unsigned *pending)
{
    ENTER(d, "DeviceGetMigMode");
    *now = *pending = number(of(d), "mig", 0);
    return NVML_DONE;
}

int nvmlDeviceGetNvLinkState(nvml_dev *d, unsigned link, unsigned *up)
{
    ENTER(d, "DeviceGetNvLinkState");
    if (link >= 18) {
        return 2; /* no such link */
    }
    *up = link < number(of(d), "links", 18);
    return NVML_DONE;
}

int nvmlDeviceGetMemoryInfo_v2(nvml_dev *d, struct nvml_memory *m)
{
    ENTER(d, "DeviceGetMemoryInfo_v2");
    if (m->version != NVML_MEMORY_2) {
        return 25; /* another version of the struct */
    }
    m->total = 80ull << 30;
    m->reserved = 600ull << 20;
    m->used = (unsigned long long)number(of(d), "used_mib", 4) << 20;
    m->free = m->total - m->reserved - m->used;
    return NVML_DONE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvml_dev *d, unsigned *n, void *room)
{
    ENTER(d, "DeviceGetComputeRunningProcesses_v3");
    *n = number(of(d), "processes", 0);
    return room == NULL && *n > 0 ? NVML_TOO_SMALL : NVML_DONE;
}

int nvmlDeviceGetGpuFabricInfo(nvml_dev *d, struct nvml_fabric *f)
{
    ENTER(d, "DeviceGetGpuFabricInfo");
    memset(f, 0, sizeof *f);
    f->state = (unsigned char)number(of(d), "fabric", NVML_FABRIC_DONE);
    f->status = (int)number(of(d), "fabric_status", NVML_DONE);
    return NVML_DONE;
}
