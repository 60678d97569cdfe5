#include "agent/preflight/gpus.h"

#include "common/codec/units.h"

const struct nvml *gpus_of(struct look *l, struct finding *f)
{
    if (!l->nvml_asked) {
        l->nvml_asked = true;
        l->nvml_rc = nvml_open(&l->nvml, &l->nvml_why);
    }
    if (l->nvml_rc != 0) {
        if (l->nvml_rc == E_NOTFOUND) {
            finding_skip(f, "no NVIDIA driver here");
        } else {
            finding_skip(f, "%s", l->nvml_why.text);
        }
        return NULL;
    }
    if (l->nvml->n == 0) {
        finding_skip(f, "no GPU");
        return NULL;
    }
    return l->nvml;
}

void gpus_told(struct finding *f, unsigned told, const char *fine)
{
    if (told == 0) {
        finding_skip(f, "no GPU here tells it");
    } else {
        finding_ok(f, "%u %s: %s", told, plural(told, "GPU", "GPUs"), fine);
    }
}

void gpus_each(struct look *l, struct finding *f,
               bool (*ask)(const struct nvml *n, const struct nvml_gpu *g, struct finding *f),
               const char *fine)
{
    const struct nvml *n = gpus_of(l, f);
    unsigned told = 0;

    if (n == NULL) {
        return;
    }
    EACH_GPU(n, g)
    {
        told += ask(n, g, f);
    }
    gpus_told(f, told, fine);
}
