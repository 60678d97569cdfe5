#include "agent/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/manifest.h"
#include "agent/train/weights.h"
#include "common/base/log.h"
#include "common/os/newfile.h"

enum { SMALL_FILE_BYTES = 1 << 20, LEAST_FILES = 4 };

static const char prefix[] = "checkpoint-";
static const char partial[] = ".partial";

static void join(char out[PATH_MAX], const char *dir, const char *name)
{
    /* A path that does not fit fails when it is opened, under the shortened name's error. */
    snprintf(out, PATH_MAX, "%s/%s", dir, name);
}

/* --- writing ------------------------------------------------------------------------------------------------------- */

static int save_text(const char *dir, const char *name, const struct buf *text,
                     struct digest *digest, struct err *e)
{
    char path[PATH_MAX];
    struct newfile *f;
    int rc;

    join(path, dir, name);
    digest_of(buf_slice(text), digest);
    rc = newfile_open(path, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, text->p, text->n);
        rc = newfile_commit(&f, e);
    }
    return rc;
}

static void format_state(const struct train_state *s, struct buf *out)
{
    buf_addf(out,
             "{\"version\":1,\"step\":%lld,\"samples\":%llu,\"tokens\":%llu,\"seed\":%llu,"
             "\"seq\":%lld,\"windows\":%llu}\n",
             (long long)s->step, (unsigned long long)s->samples, (unsigned long long)s->tokens,
             (unsigned long long)s->seed, (long long)s->seq, (unsigned long long)s->windows);
}

/* All that a checkpoint holds, in host memory. */
struct copy {
    float *param, *m, *v;
};

static int take(struct copy *c, struct model *m, struct optim *o, struct err *e)
{
    size_t n = (size_t)m->layout.size, bytes = model_accum_bytes(m, m->layout.size);
    int rc;

    CHECK(m->accum == DT_F32);
    *c = (struct copy){mem_array(n, sizeof *c->param), mem_array(n, sizeof *c->m),
                       mem_array(n, sizeof *c->v)};
    rc = model_get(m, c->param, m->master, bytes, e);
    rc = rc != 0 ? rc : model_get(m, c->m, o->m, bytes, e);
    return rc != 0 ? rc : model_get(m, c->v, o->v, bytes, e);
}

static int save_files(const char *dir, const struct model *m, const struct copy *c,
                      const struct train_state *s, struct err *e)
{
    const struct weights_copy param = {"", c->param};
    const struct weights_copy moments[] = {{"exp_avg.", c->m}, {"exp_avg_sq.", c->v}};
    struct buf manifest = BUF_INIT(MANIFEST_MAX_BYTES), text = BUF_INIT(SMALL_FILE_BYTES);
    struct digest d;
    int rc;

    config_format(&m->config, &text);
    rc = save_text(dir, "config.json", &text, &d, e);
    manifest_add(&manifest, &d, "config.json");
    rc = rc != 0
             ? rc
             : weights_save(&m->layout, &param, 1, dir, "model", WEIGHTS_SPLIT_BYTES, &manifest, e);
    rc = rc != 0 ? rc
                 : weights_save(&m->layout, moments, 2, dir, "optimizer", WEIGHTS_SPLIT_BYTES,
                                &manifest, e);
    if (rc == 0) {
        buf_clear(&text);
        format_state(s, &text);
        rc = save_text(dir, "trainer.json", &text, &d, e);
        manifest_add(&manifest, &d, "trainer.json");
    }
    rc = rc != 0 ? rc : save_text(dir, MANIFEST_NAME, &manifest, &d, e);
    buf_free(&text);
    buf_free(&manifest);
    return rc;
}

int checkpoint_save(const char *out, struct model *m, struct optim *o, const struct train_state *s,
                    struct err *e)
{
    char temp[PATH_MAX], final[PATH_MAX];
    struct copy c = {0};
    int rc;

    snprintf(final, sizeof final, "%s/%s%lld", out, prefix, (long long)s->step);
    snprintf(temp, sizeof temp, "%s/%s%lld%s", out, prefix, (long long)s->step, partial);
    rc = dir_remove_tree(temp, e);
    if (rc == 0) {
        rc = dir_make(temp, 0755, e);
    }
    if (rc == 0) {
        rc = take(&c, m, o, e);
        rc = rc != 0 ? rc : save_files(temp, m, &c, s, e);
    }
    if (rc == 0) {
        rc = dir_remove_tree(final,
                             e); /* a damaged one of the same step, passed over by --resume auto */
    }
    if (rc == 0 && rename(temp, final) == -1) {
        rc = err_sys(e, "rename %s", temp);
    }
    free(c.param);
    free(c.m);
    free(c.v);
    return rc == 0 ? dir_sync(out, e) : rc;
}

/* --- reading ------------------------------------------------------------------------------------------------------- */

int checkpoint_verify(const char *dir, struct err *e)
{
    return manifest_verify(dir, LEAST_FILES, e);
}

static bool get_count(const json_t *root, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(root, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static int parse_state(struct slice text, struct train_state *s, struct err *e)
{
    json_t *root = json_loadb(text.p == NULL ? "" : text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    uint64_t version = 0, step = 0, seq = 0;
    int rc = 0;

    if (!get_count(root, "version", &version) || version != 1 || !get_count(root, "step", &step) ||
        !get_count(root, "samples", &s->samples) || !get_count(root, "tokens", &s->tokens) ||
        !get_count(root, "seed", &s->seed) || !get_count(root, "seq", &seq) ||
        !get_count(root, "windows", &s->windows)) {
        rc = err_set(e, E_CORRUPT, "trainer.json: not this program's state, or of another version");
    }
    s->step = (int64_t)step;
    s->seq = (int64_t)seq;
    json_decref(root);
    return rc;
}

int checkpoint_state(const char *dir, struct train_state *s, struct err *e)
{
    struct buf text = BUF_INIT(SMALL_FILE_BYTES);
    char path[PATH_MAX];
    int rc;

    join(path, dir, "trainer.json");
    rc = buf_read_file(&text, path, e);
    if (rc == 0) {
        rc = parse_state(buf_slice(&text), s, e);
    }
    buf_free(&text);
    return rc;
}

int checkpoint_load(const char *dir, struct model *m, struct optim *o, struct train_state *s,
                    struct err *e)
{
    const struct weights_part param = {"", m->master, m->accum};
    const struct weights_part moments[] = {{"exp_avg.", o->m, m->accum},
                                           {"exp_avg_sq.", o->v, m->accum}};
    int rc = checkpoint_state(dir, s, e);

    rc = rc != 0 ? rc : weights_load(m, &param, 1, dir, "model", e);
    return rc != 0 ? rc : weights_load(m, moments, 2, dir, "optimizer", e);
}

/* --- the folder of checkpoints ------------------------------------------------------------------------------------- */

/* The step in "checkpoint-<step>" followed by `suffix`, or -1. */
static int64_t step_of(const char *name, const char *suffix)
{
    struct slice s = slice_str(name);
    uint64_t step;

    if (!slice_starts(s, slice_str(prefix)) || !slice_ends(s, slice_str(suffix))) {
        return -1;
    }
    s = slice_from(s, strlen(prefix));
    s.n -= s.n >= strlen(suffix) ? strlen(suffix) : 0;
    return slice_u64(s, &step) && step <= INT64_MAX ? (int64_t)step : -1;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

/* Steps of the folders with that suffix, newest first; an absent folder holds none. To be freed. */
static int64_t *list(const char *out, const char *suffix, size_t *count)
{
    DIR *d = opendir(out);
    int64_t *steps = NULL;
    struct dirent *ent;
    size_t room = 0;

    *count = 0;
    while (d != NULL && (ent = readdir(d)) != NULL) {
        int64_t step = step_of(ent->d_name, suffix);

        if (step < 0) {
            continue;
        }
        if (*count == room) {
            room = 2 * room + 16;
            steps = realloc(steps, room * sizeof *steps);
            CHECK(steps != NULL);
        }
        steps[(*count)++] = step;
    }
    if (d != NULL) {
        closedir(d);
    }
    if (*count > 0) {
        qsort(steps, *count, sizeof *steps, descending);
    }
    return steps;
}

size_t checkpoint_count(const char *out)
{
    size_t n;

    free(list(out, "", &n));
    return n;
}

int checkpoint_newest(const char *out, char **dir, struct err *e)
{
    char path[PATH_MAX];
    struct err why = {0};
    size_t n;
    int64_t *steps = list(out, "", &n);
    int rc = E_NOTFOUND;

    *dir = NULL;
    for (size_t i = 0; i < n && *dir == NULL; i++) {
        snprintf(path, sizeof path, "%s/%s%lld", out, prefix, (long long)steps[i]);
        rc = checkpoint_verify(path, &why);
        if (rc == 0) {
            *dir = mem_strdup(path);
        } else {
            log_warn("checkpoint.damaged", "%s", why.text);
        }
    }
    free(steps);
    return *dir != NULL ? 0
           : n == 0     ? err_set(e, E_NOTFOUND, "%s: no checkpoint", out)
                        : err_set(e, rc, "%s: no checkpoint is whole: %s", out, why.text);
}

static int remove_one(const char *out, int64_t step, struct err *e)
{
    char name[PATH_MAX], gone[PATH_MAX];

    snprintf(name, sizeof name, "%s/%s%lld", out, prefix, (long long)step);
    snprintf(gone, sizeof gone, "%s/%s%lld%s", out, prefix, (long long)step, partial);
    if (rename(name, gone) == -1) {
        return err_sys(e, "rename %s", name);
    }
    return dir_remove_tree(gone, e);
}

int checkpoint_prune(const char *out, int64_t keep, struct err *e)
{
    char path[PATH_MAX];
    int rc = 0;
    size_t n;
    int64_t *steps = list(out, partial, &n);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        snprintf(path, sizeof path, "%s/%s%lld%s", out, prefix, (long long)steps[i], partial);
        rc = dir_remove_tree(path, e);
    }
    free(steps);
    steps = list(out, "", &n);
    for (size_t i = keep > 0 ? (size_t)keep : n; rc == 0 && i < n; i++) {
        rc = remove_one(out, steps[i], e);
    }
    free(steps);
    return rc;
}
