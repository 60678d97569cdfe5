#include "agent/slurm/exports.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/job/jobfile.h"
#include "agent/slurm/verdict.h"
#include "common/codec/url.h"

enum { LINE_BYTES = 8192 };

static const char *const usual[] = {"TRAINAGENT_MIRROR={mirror}", "HF_ENDPOINT={mirror}/hf",
                                    "PIP_INDEX_URL={mirror}/pypi/simple/",
                                    "UV_DEFAULT_INDEX={mirror}/pypi/simple/", NULL};

struct values {
    const char *mirror, *host, *staged, *job; /* NULL: there is none */
};

static const char *value_of(void *arg, struct slice name)
{
    const struct values *v = arg;

    return slice_eqs(name, "mirror")   ? v->mirror
           : slice_eqs(name, "host")   ? v->host
           : slice_eqs(name, "staged") ? v->staged
           : slice_eqs(name, "job")    ? v->job
                                       : NULL;
}

/* The mirror's, as pip's trusted-host wants it. */
static const char *host_of(const struct node *n, char out[256])
{
    struct url u;

    if (n->mirror == NULL || url_split(slice_str(n->mirror), &u, NULL) != 0) {
        return NULL;
    }
    snprintf(out, 256, SLICE_FMT, SLICE_ARG(u.host));
    return out;
}

static bool name_ok(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
              (i > 0 && c >= '0' && c <= '9'))) {
            return false;
        }
    }
    return name.n > 0;
}

bool exports_fill(const char *line, const struct node *n, const char *job, const char *staged,
                  struct buf *out)
{
    char host[256];
    char mirror[2048];
    struct slice rest = slice_str(line);
    struct values v = {.host = host_of(n, host), .staged = staged, .job = job};
    struct slice unknown;

    if (n->mirror != NULL) {
        snprintf(mirror, sizeof mirror, "%s", n->mirror);
        for (size_t i = strlen(mirror); i > 0 && mirror[i - 1] == '/'; i--) {
            mirror[i - 1] = '\0';
        }
        v.mirror = mirror;
    }
    buf_clear(out);
    if (slice_find(rest, '=') < 0 || !name_ok(slice_cut(&rest, '=')) ||
        jobfile_fill(line, value_of, &v, out, &unknown, NULL) != 0) {
        return false;
    }
    for (size_t i = 0; i < out->n; i++) {
        if ((uint8_t)out->p[i] < 0x20 || out->p[i] == 0x7f) {
            return false; /* a line of its own */
        }
    }
    return true;
}

static void print_one(const char *line, const struct node *n, const char *job, const char *staged)
{
    struct buf out = BUF_INIT(LINE_BYTES);

    if (exports_fill(line, n, job, staged, &out)) {
        struct slice rest = buf_slice(&out);
        struct slice name = slice_cut(&rest, '=');
        char *cname = mem_new(name.n + 1);
        const char *has;

        memcpy(cname, name.p, name.n);
        has = getenv(cname);
        if (has == NULL || has[0] == '\0') {
            printf("export " SLICE_FMT "\n", SLICE_ARG(buf_slice(&out)));
        }
        free(cname);
    }
    buf_free(&out);
}

void exports_print(const struct node *n, const char *job, const char *staged)
{
    const char *const *line = n->slurm.export != NULL ? n->slurm.export : usual;

    for (; *line != NULL; line++) {
        print_one(*line, n, job, staged);
    }
    if (n->slurm.export == NULL && n->mirror != NULL &&
        slice_starts(slice_str(n->mirror), SLICE("http://"))) {
        print_one("PIP_TRUSTED_HOST={host}", n, job, staged);
    }
    /* Ours alone: a job that was submitted from within another has the other's. */
    if (staged != NULL) {
        printf("export MIRROR_STAGED=%s\n", staged);
    } else if (getenv("MIRROR_STAGED") != NULL) {
        puts("unset MIRROR_STAGED");
    }
}
