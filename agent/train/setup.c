#include <limits.h>
#include <stdio.h>

#include "agent/train/verbs.h"
#include "agent/train/weights.h"
#include "common/base/log.h"

enum { USUAL_SEQ = 1024 };

int setup_at_least(const char *name, int64_t value, int64_t least, struct err *e)
{
    return value >= least ? 0
                          : err_set(e, E_USAGE, "--%s %lld: at least %lld", name, (long long)value,
                                    (long long)least);
}

int setup_device(const struct options *o, int local_rank, const struct kops **out, struct err *e)
{
    struct err why = {0};

    *out = NULL;
    if (strcmp(o->dtype, "f32") != 0) {
        return err_set(e, E_UNSUPPORTED, "--dtype %.20s: only f32 is supported", o->dtype);
    }
    if (strcmp(o->device, "cpu") == 0) {
        *out = kops_cpu();
        return 0;
    }
    if (strcmp(o->device, "auto") != 0 && strcmp(o->device, "cuda") != 0) {
        return err_set(e, E_USAGE, "--device %.20s: auto, cuda or cpu", o->device);
    }
    *out = kops_cuda(local_rank, &why);
    if (*out == NULL && strcmp(o->device, "cuda") == 0) {
        return err_set(e, E_UNSUPPORTED, "--device cuda: %s", why.text);
    }
    if (*out == NULL) {
        log_debug("device.cpu", "%s", why.text);
        *out = kops_cpu();
    }
    return 0;
}

int setup_config(const struct options *o, struct model_config *out, struct err *e)
{
    char path[PATH_MAX];
    int rc;

    if (o->model != NULL && o->config != NULL) {
        return err_set(e, E_USAGE, "--model brings its own configuration: leave out --config");
    }
    if (o->model != NULL) {
        snprintf(path, sizeof path, "%s/config.json", o->model);
        return config_load(path, out, e);
    }
    if (o->config == NULL) {
        return err_set(e, E_USAGE, "--config or --model is needed");
    }
    rc = config_builtin(o->config, out, e);
    return rc == E_NOTFOUND && strchr(o->config, '.') != NULL ? config_load(o->config, out, e) : rc;
}

int64_t setup_seq(const struct options *o, const struct model_config *c)
{
    return o->seq != 0 ? o->seq : c->context < USUAL_SEQ ? c->context : USUAL_SEQ;
}

int setup_model(const struct options *o, const struct model_config *c, const struct kops *k,
                int world, bool training, struct model **out, struct err *e)
{
    int rc = model_open(c, k, DT_F32, world, training, out, e);

    if (rc != 0) {
        return rc;
    }
    if (o->model != NULL) {
        const struct weights_part param = {"", (*out)->param, (*out)->dt};

        rc = weights_load(*out, &param, 1, o->model, "model", e);
    } else {
        rc = model_init(*out, (uint64_t)o->seed, e);
    }
    if (rc != 0) {
        model_close(out);
    }
    return rc;
}
