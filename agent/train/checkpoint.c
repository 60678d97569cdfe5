#include "agent/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/integrity.h"
#include "agent/train/manifest.h"
#include "agent/train/moments.h"
#include "agent/train/powersgd_state.h"
#include "agent/train/products.h"
#include "agent/train/weights.h"
#include "common/base/log.h"
#include "common/os/newfile.h"

enum { SMALL_FILE_BYTES = 1 << 20, INDEX_MAX_BYTES = 32 << 20, LEAST_FILES = 4 };

static const char prefix[] = "checkpoint-";
static const char partial[] = ".partial";

static void join_checkpoint_path(char out[PATH_MAX], const char *dir, const char *name)
{
    /* A path that does not fit fails when it is opened, under the shortened name's error. */
    snprintf(out, PATH_MAX, "%s/%s", dir, name);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A small file, noted in the manifest when that is given. */
static int save_text(const char *dir, const char *name, const struct buf *text,
                     struct buf *manifest, struct err *e)
{
    char path[PATH_MAX];
    struct digest digest;
    struct newfile *f;
    int rc;

    join_checkpoint_path(path, dir, name);
    if (text->rc != 0) {
        return err_set(e, text->rc, "%s: the path or file is too long", name);
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

static void path_of_checkpoint(char path[PATH_MAX], const char *out, int64_t step,
                               const char *suffix)
{
    snprintf(path, PATH_MAX, "%s/%s%lld%s", out, prefix, (long long)step, suffix);
}

void checkpoint_folder(const char *out, const struct checkpoint *c, char dir[PATH_MAX])
{
    char suffix[32 + sizeof partial];

    snprintf(suffix, sizeof suffix, ".%llu%s", (unsigned long long)c->attempt, partial);
    path_of_checkpoint(dir, out, c->state.step, suffix);
}

int checkpoint_begin(const char *out, const struct checkpoint *c, struct err *e)
{
    char temp[PATH_MAX];
    int rc;

    checkpoint_folder(out, c, temp);
    rc = dir_remove_tree(temp, e);
    return rc != 0 ? rc : dir_make(temp, 0755, e);
}

int checkpoint_part(const char *out, const struct checkpoint *c, struct err *e)
{
    char temp[PATH_MAX];
    size_t ranks = (size_t)c->ranks;
    int rc = 0;

    checkpoint_folder(out, c, temp);
    for (size_t i = (size_t)c->rank; rc == 0 && i < tensor_files_count(c->model); i += ranks) {
        rc = tensor_files_write(c->model, i, temp, e);
    }
    for (size_t i = 0; rc == 0 && i < tensor_files_count(c->moments); i++) {
        rc = tensor_files_write(c->moments, i, temp, e);
    }
    return rc;
}

/* A file of a checkpoint, and the rank that writes it. */
struct written {
    char name[NAME_MAX];
    int rank;
};

/* The tensor files of all ranks, by number; false: there are no more. */
static bool tensor_file_at(const struct checkpoint *c, size_t i, struct written *w)
{
    size_t models = tensor_files_count(c->model);
    size_t moments = c->ranks == 1 ? tensor_files_count(c->moments) : (size_t)c->ranks;

    if (i < models) {
        w->rank = (int)(i % (size_t)c->ranks);
        tensor_files_name(c->model, i, w->name);
        return true;
    }
    i -= models;
    if (c->ranks == 1 && i < moments) {
        w->rank = 0;
        tensor_files_name(c->moments, i, w->name);
        return true;
    }
    if (i < moments) {
        w->rank = (int)i;
        tensor_slices_name(MOMENTS_BASE, w->rank, c->ranks, w->name);
        return true;
    }
    i -= moments;
    w->rank = (int)i;
    powersgd_file_name(w->rank, c->left_out, w->name);
    return i < (size_t)c->left_out;
}

bool checkpoint_parts_there(const char *out, const struct checkpoint *c)
{
    char temp[PATH_MAX], list[PATH_MAX + NAME_MAX + 16];
    struct written w;

    checkpoint_folder(out, c, temp);
    for (size_t i = 0; tensor_file_at(c, i, &w); i++) {
        snprintf(list, sizeof list, "%s/%s" CHUNK_LIST_SUFFIX, temp, w.name);
        if (access(list, F_OK) != 0) {
            return false;
        }
    }
    return true;
}

/* What its rank has noted of it; it must be there, for the rank may have another folder of this
 * name. */
static int note_tensor_file(const char *dir, const struct written *w, struct buf *manifest,
                            struct err *e)
{
    struct buf text = BUF_INIT(CHUNK_LIST_MAX_BYTES);
    struct chunk_list list = {0};
    char path[PATH_MAX], name[NAME_MAX + 16];
    struct digest digest;
    struct stat st;
    int rc;

    snprintf(name, sizeof name, "%s" CHUNK_LIST_SUFFIX, w->name);
    join_checkpoint_path(path, dir, name);
    rc = buf_read_file(&text, path, e);
    rc = rc != 0 ? rc : chunks_decode(buf_slice(&text), &list, e);
    join_checkpoint_path(path, dir, w->name);
    if (rc == 0 && (stat(path, &st) == -1 || (uint64_t)st.st_size != list.size_bytes)) {
        rc = err_set(e, E_NOTFOUND, "%s is missing or its size differs from what the rank wrote",
                     path);
    }
    if (rc == 0) {
        manifest_add(manifest, &list.whole, w->name);
        digest_of(buf_slice(&text), &digest);
        manifest_add(manifest, &digest, name);
    } else {
        err_prefix(e, "the part of rank %d (all ranks must see the same folder)", w->rank);
    }
    chunks_free(&list);
    buf_free(&text);
    return rc;
}

static int note_tensors(const char *dir, const struct checkpoint *c, struct buf *manifest,
                        struct err *e)
{
    const struct tensor_files *indexed[] = {c->model, c->moments};
    struct buf text = BUF_INIT(INDEX_MAX_BYTES);
    char name[NAME_MAX];
    struct written w;
    int rc = 0;

    for (size_t i = 0; rc == 0 && tensor_file_at(c, i, &w); i++) {
        rc = note_tensor_file(dir, &w, manifest, e);
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(indexed); i++) {
        buf_clear(&text);
        tensor_files_index(indexed[i], name, &text);
        rc = text.n > 0 || text.rc != 0 ? save_text(dir, name, &text, manifest, e) : 0;
    }
    buf_free(&text);
    return rc;
}

static int save_files(const char *dir, const struct checkpoint *c, struct err *e)
{
    struct buf manifest = BUF_INIT(MANIFEST_MAX_BYTES), text = BUF_INIT(SMALL_FILE_BYTES);
    int rc;

    config_format(c->config, &text);
    rc = save_text(dir, "config.json", &text, &manifest, e);
    rc = rc != 0 ? rc : companions_save(c->companions, dir, &manifest, e);
    rc = rc != 0 ? rc : note_tensors(dir, c, &manifest, e);
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

void checkpoint_drop(const char *out, const struct checkpoint *c, struct err *e)
{
    char temp[PATH_MAX];

    checkpoint_folder(out, c, temp);
    /* It may hold the space that was missing. */
    if (dir_remove_tree(temp, NULL) != 0) {
        err_prefix(e, "%s could not be removed after the write failed", temp);
    }
}

/* There may be one of the same step, damaged, which --resume auto passed over: it gives way, and is
 * back where the new one cannot take its place. *aside: it was there. */
static int replace(const char *temp, const char *final, const char *gone, bool *aside,
                   struct err *e)
{
    int rc = dir_remove_tree(gone, e);

    *aside = rc == 0 && rename(final, gone) == 0;
    if (rc == 0 && !*aside && errno != ENOENT) {
        return err_sys(e, "cannot rename %s", final);
    }
    if (rc == 0 && rename(temp, final) == -1) {
        rc = err_sys(e, "cannot rename %s", temp);
        if (*aside && rename(gone, final) == -1) {
            log_warn("checkpoint.replace", "%s could not be put back and remains at %s", final,
                     gone);
        }
    }
    return rc;
}

int checkpoint_commit(const char *out, const struct checkpoint *c, struct err *e)
{
    char temp[PATH_MAX], final[PATH_MAX], gone[PATH_MAX];
    struct err why = {0};
    bool aside = false;
    int rc;

    checkpoint_folder(out, c, temp);
    path_of_checkpoint(final, out, c->state.step, "");
    path_of_checkpoint(gone, out, c->state.step, partial);
    rc = save_files(temp, c, e);
    rc = rc != 0 ? rc : replace(temp, final, gone, &aside, e);
    if (rc != 0) {
        checkpoint_drop(out, c, e);
        return rc;
    }
    rc = dir_sync(out, e);
    if (rc == 0 && aside && dir_remove_tree(gone, &why) != 0) {
        log_warn("checkpoint.replace", "%s", why.text);
    }
    return rc;
}

/* --- reading ---------------------------------------------------------------------------------- */

int checkpoint_verify(const char *dir, struct err *e)
{
    return manifest_verify(dir, LEAST_FILES, e);
}

int checkpoint_check(const char *dir, struct err *e)
{
    struct integrity *i;
    int rc = integrity_open(dir, &i, e);

    rc = rc != 0 ? rc : integrity_rest(i, e);
    integrity_close(&i);
    return rc;
}

int checkpoint_state(const char *dir, struct train_state *s, struct err *e)
{
    struct buf text = BUF_INIT(SMALL_FILE_BYTES);
    char path[PATH_MAX];
    int rc;

    join_checkpoint_path(path, dir, "trainer.json");
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
    struct integrity *i;
    bool found = false;
    int rc = integrity_open(dir, &i, e);

    rc = rc != 0 ? rc : weights_load(m, &param, 1, dir, "model", i, e);
    rc = rc != 0 ? rc : moments_load(dir, m, o, i, e);
    if (rc == 0 && m->powersgd != NULL) {
        rc = powersgd_load(dir, m, i, &found, e);
        powersgd_set_resumed(m, rc == 0 && found);
    }
    if (rc == 0) {
        log_debug("checkpoint.read", "dir=%s verified_bytes=%llu", dir,
                  (unsigned long long)integrity_read_bytes(i));
    }
    integrity_close(&i);
    return rc;
}

/* --- the folder of checkpoints ---------------------------------------------------------------- */

/* The step in "checkpoint-<step>", or -1. */
static int64_t step_of_checkpoint(const char *name)
{
    struct slice s = slice_str(name);
    uint64_t step;

    if (!slice_starts(s, slice_str(prefix))) {
        return -1;
    }
    s = slice_from(s, strlen(prefix));
    return slice_u64(s, &step) && step <= INT64_MAX ? (int64_t)step : -1;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

/* Their steps, newest first; an absent folder holds none. To be freed. */
static int64_t *list_checkpoint_steps(const char *out, size_t *count)
{
    DIR *d = opendir(out);
    int64_t *steps = NULL;
    struct dirent *ent;
    size_t room = 0;

    *count = 0;
    while (d != NULL && (ent = readdir(d)) != NULL) {
        int64_t step = step_of_checkpoint(ent->d_name);

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

    free(list_checkpoint_steps(out, &n));
    return n;
}

int64_t checkpoint_last_step(const char *out)
{
    size_t n;
    int64_t *steps = list_checkpoint_steps(out, &n), last = n > 0 ? steps[0] : -1;

    free(steps);
    return last;
}

char *checkpoint_path(const char *out, int64_t step)
{
    char path[PATH_MAX];

    path_of_checkpoint(path, out, step, "");
    return mem_strdup(path);
}

/* The newest before step `below` that passes the check. */
static int find_newest(const char *out, int64_t below, int (*check)(const char *dir, struct err *e),
                       int64_t *step, struct err *e)
{
    char path[PATH_MAX];
    struct err why = {0};
    size_t n, tried = 0;
    int64_t *steps = list_checkpoint_steps(out, &n);
    int rc = E_NOTFOUND;

    *step = -1;
    for (size_t i = 0; i < n && *step == -1; i++) {
        if (steps[i] >= below) {
            continue;
        }
        tried++;
        path_of_checkpoint(path, out, steps[i], "");
        rc = check(path, &why);
        if (rc == 0) {
            *step = steps[i];
        } else {
            log_warn("checkpoint.damaged", "%s", why.text);
        }
    }
    free(steps);
    return *step != -1  ? 0
           : tried == 0 ? err_set(e, E_NOTFOUND, "%s: the folder has no checkpoint", out)
                        : err_set(e, rc, "%s: every checkpoint is damaged: %s", out, why.text);
}

int checkpoint_newest(const char *out, char **dir, struct err *e)
{
    int64_t step;
    int rc = find_newest(out, INT64_MAX, checkpoint_verify, &step, e);

    *dir = rc == 0 ? checkpoint_path(out, step) : NULL;
    return rc;
}

int checkpoint_newest_below(const char *out, int64_t below, int64_t *step, struct err *e)
{
    return find_newest(out, below, checkpoint_check, step, e);
}

static int remove_one(const char *out, int64_t step, struct err *e)
{
    char name[PATH_MAX], gone[PATH_MAX];

    path_of_checkpoint(name, out, step, "");
    path_of_checkpoint(gone, out, step, partial);
    if (rename(name, gone) == -1) {
        return err_sys(e, "cannot rename %s", name);
    }
    return dir_remove_tree(gone, e);
}

/* The attempt in "checkpoint-<step>.<attempt>.partial", 0 in "checkpoint-<step>.partial". False:
 * the name is neither. */
static bool attempt_of(const char *name, uint64_t *out)
{
    struct slice rest = slice_str(name);
    uint64_t step;

    *out = 0;
    if (!slice_starts(rest, slice_str(prefix)) || !slice_ends(rest, slice_str(partial))) {
        return false;
    }
    rest = slice_from(rest, strlen(prefix));
    rest.n -= strlen(partial) - 1; /* "<step>." or "<step>.<attempt>." */
    if (!slice_u64(slice_cut(&rest, '.'), &step)) {
        return false;
    }
    return rest.n == 0 || (slice_u64(slice_cut(&rest, '.'), out) && rest.n == 0);
}

/* What earlier attempts left behind, and this one where its own folder is not the exception. */
static int sweep_checkpoints(const char *out, uint64_t attempt, const char *writing, struct err *e)
{
    DIR *d = opendir(out);
    struct dirent *ent;
    int first = 0;

    while (d != NULL && (ent = readdir(d)) != NULL) {
        char path[PATH_MAX];
        uint64_t whose;
        int rc;

        join_checkpoint_path(path, out, ent->d_name);
        if (!attempt_of(ent->d_name, &whose) || whose > attempt || strcmp(path, writing) == 0) {
            continue;
        }
        rc = dir_remove_tree(path, first == 0 ? e : NULL);
        first = first != 0 ? first : rc;
    }
    if (d != NULL) {
        closedir(d);
    }
    return first;
}

int checkpoint_prune(const char *out, const struct checkpoint *c, bool writing, int64_t good,
                     int64_t keep, struct err *e)
{
    char folder[PATH_MAX] = "";
    int first;
    int64_t kept = 0, *steps;
    size_t n;

    if (writing) {
        checkpoint_folder(out, c, folder);
    }
    first = sweep_checkpoints(out, c->attempt, folder, e);
    steps = list_checkpoint_steps(out, &n);
    for (size_t i = 0; keep > 0 && i < n; i++) {
        if (steps[i] <= good && kept++ >= keep) {
            int rc = remove_one(out, steps[i], first == 0 ? e : NULL);
            first = first != 0 ? first : rc;
        }
    }
    free(steps);
    return first;
}
