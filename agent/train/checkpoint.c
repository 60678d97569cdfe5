#include "agent/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/manifest.h"
#include "agent/train/powersgd_state.h"
#include "agent/train/products.h"
#include "common/base/log.h"
#include "common/os/newfile.h"

enum { SMALL_FILE_BYTES = 1 << 20, LEAST_FILES = 4 };

static const char prefix[] = "checkpoint-";
static const char partial[] = ".partial";
static const char first_moment[] = "exp_avg.", second_moment[] = "exp_avg_sq.";

static void join(char out[PATH_MAX], const char *dir, const char *name)
{
    /* A path that does not fit fails when it is opened, under the shortened name's error. */
    snprintf(out, PATH_MAX, "%s/%s", dir, name);
}

/* --- writing ------------------------------------------------------------------------------------------------------- */

/* A small file, noted in the manifest when that is given. */
static int save_text(const char *dir, const char *name, const struct buf *text,
                     struct buf *manifest, struct err *e)
{
    char path[PATH_MAX];
    struct digest digest;
    struct newfile *f;
    int rc;

    join(path, dir, name);
    if (text->rc != 0) {
        return err_set(e, text->rc, "%s: too long", name);
    }
    if (manifest != NULL) {
        digest_of(buf_slice(text), &digest);
        manifest_add(manifest, &digest, name);
    }
    rc = newfile_open(path, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, text->p, text->n);
        rc = newfile_commit(&f, e);
    }
    return rc;
}

static int save_tensors(const char *dir, const struct checkpoint *c, struct buf *manifest,
                        struct err *e)
{
    struct weights_source param = c->param, moments[] = {c->m, c->v};
    int rc;

    param.prefix = "";
    moments[0].prefix = first_moment;
    moments[1].prefix = second_moment;
    rc = weights_save(c->layout, &param, 1, dir, "model", WEIGHTS_SPLIT_BYTES, manifest, e);
    return rc != 0 ? rc
                   : weights_save(c->layout, moments, 2, dir, "optimizer", WEIGHTS_SPLIT_BYTES,
                                  manifest, e);
}

/* What the ranks have written themselves. */
static int note_left_out(const char *dir, int ranks, struct buf *manifest, struct err *e)
{
    char name[NAME_MAX], path[PATH_MAX];
    struct digest digest;
    struct stat st;
    int rc = 0;

    for (int r = 0; rc == 0 && r < ranks; r++) {
        int fd;

        powersgd_file_name(r, ranks, name);
        join(path, dir, name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        rc = fd == -1 || fstat(fd, &st) == -1
                 ? err_sys(e, "%s (do all ranks see the same --out?)", path)
                 : digest_of_fd(fd, (uint64_t)st.st_size, &digest, e);
        if (rc == 0) {
            manifest_add(manifest, &digest, name);
        }
        if (fd != -1) {
            close(fd);
        }
    }
    return rc;
}

static int save_files(const char *dir, const struct checkpoint *c, struct err *e)
{
    struct buf manifest = BUF_INIT(MANIFEST_MAX_BYTES), text = BUF_INIT(SMALL_FILE_BYTES);
    int rc;

    config_format(c->config, &text);
    rc = save_text(dir, "config.json", &text, &manifest, e);
    rc = rc != 0 ? rc : companions_save(c->companions, dir, &manifest, e);
    rc = rc != 0 ? rc : save_tensors(dir, c, &manifest, e);
    rc = rc != 0 ? rc : note_left_out(dir, c->left_out, &manifest, e);
    if (rc == 0 && c->products->n > 0) {
        rc = save_text(dir, PRODUCTS_NAME, c->products, &manifest, e);
    }
    buf_clear(&text);
    state_format(&c->state, &text);
    rc = rc != 0 ? rc : save_text(dir, "trainer.json", &text, &manifest, e);
    rc = rc != 0 ? rc : save_text(dir, MANIFEST_NAME, &manifest, NULL, e);
    buf_free(&text);
    buf_free(&manifest);
    return rc;
}

void checkpoint_folder(const char *out, int64_t step, char dir[PATH_MAX])
{
    snprintf(dir, PATH_MAX, "%s/%s%lld%s", out, prefix, (long long)step, partial);
}

int checkpoint_begin(const char *out, int64_t step, struct err *e)
{
    char dir[PATH_MAX];
    int rc;

    checkpoint_folder(out, step, dir);
    rc = dir_remove_tree(dir, e);
    return rc != 0 ? rc : dir_make(dir, 0755, e);
}

int checkpoint_write(const char *out, const struct checkpoint *c, struct err *e)
{
    char temp[PATH_MAX], final[PATH_MAX];
    int rc;

    snprintf(final, sizeof final, "%s/%s%lld", out, prefix, (long long)c->state.step);
    checkpoint_folder(out, c->state.step, temp);
    rc = c->left_out > 0 ? 0 : checkpoint_begin(out, c->state.step, e);
    rc = rc != 0 ? rc : save_files(temp, c, e);
    /* There may be a damaged one of the same step, which --resume auto passed over. */
    rc = rc != 0 ? rc : dir_remove_tree(final, e);
    if (rc == 0 && rename(temp, final) == -1) {
        rc = err_sys(e, "rename %s", temp);
    }
    if (rc != 0) {
        /* It may hold the space that was missing. */
        if (dir_remove_tree(temp, NULL) != 0) {
            err_prefix(e, "%s is left behind", temp);
        }
        return rc;
    }
    return dir_sync(out, e);
}

/* --- reading ------------------------------------------------------------------------------------------------------- */

int checkpoint_verify(const char *dir, struct err *e)
{
    return manifest_verify(dir, LEAST_FILES, e);
}

int checkpoint_state(const char *dir, struct train_state *s, struct err *e)
{
    struct buf text = BUF_INIT(SMALL_FILE_BYTES);
    char path[PATH_MAX];
    int rc;

    join(path, dir, "trainer.json");
    rc = buf_read_file(&text, path, e);
    if (rc == 0) {
        rc = state_parse(buf_slice(&text), s, e);
        if (rc != 0) {
            err_prefix(e, "%s", dir);
        }
    }
    buf_free(&text);
    return rc;
}

int checkpoint_load(const char *dir, struct model *m, struct optim *o, struct err *e)
{
    const struct weights_part param = {"", m->master, m->master_held, m->accum};
    const struct weights_part moments[] = {{first_moment, o->m, m->state_held, m->accum},
                                           {second_moment, o->v, m->state_held, m->accum}};
    bool found = false;
    int rc = weights_load(m, &param, 1, dir, "model", e);

    rc = rc != 0 ? rc : weights_load(m, moments, 2, dir, "optimizer", e);
    if (rc == 0 && m->powersgd != NULL) {
        rc = powersgd_load(dir, m, &found, e);
        powersgd_set_resumed(m, rc == 0 && found);
    }
    return rc;
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

int64_t checkpoint_last_step(const char *out)
{
    size_t n;
    int64_t *steps = list(out, "", &n), last = n > 0 ? steps[0] : -1;

    free(steps);
    return last;
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

int checkpoint_prune(const char *out, int64_t good, int64_t keep, struct err *e)
{
    char path[PATH_MAX];
    int first = 0;
    int64_t kept = 0;
    size_t n;
    int64_t *steps = list(out, partial, &n);

    for (size_t i = 0; i < n; i++) {
        int rc;
        snprintf(path, sizeof path, "%s/%s%lld%s", out, prefix, (long long)steps[i], partial);
        rc = dir_remove_tree(path, first == 0 ? e : NULL);
        first = first != 0 ? first : rc;
    }
    free(steps);
    steps = list(out, "", &n);
    for (size_t i = 0; keep > 0 && i < n; i++) {
        if (steps[i] <= good && kept++ >= keep) {
            int rc = remove_one(out, steps[i], first == 0 ? e : NULL);
            first = first != 0 ? first : rc;
        }
    }
    free(steps);
    return first;
}
