/* gc.c - what is on the local cache, and what may go: least recently used first, never what a lock
 * or a job's record protects. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cache/pins.h"
#include "agent/cache/spare.h"
#include "agent/cache/unpack.h"
#include "common/base/log.h"
#include "common/codec/jread.h"
#include "common/os/newfile.h"

enum { PARTIAL_AGE_S = 7 * 86400, KNOWN_AGE_S = 90 * 86400, JOURNAL_LARGE = 8 << 20 };

enum thing_kind { THING_BLOB, THING_TREE, THING_PARTIAL };

struct thing {
    enum thing_kind kind;
    struct digest key;
    uint64_t size_bytes; /* on disk */
    uint64_t used_unix_s;
    bool pinned; /* by a job's record */
};

struct things {
    struct thing *at;
    size_t n, room;
};

static struct thing *add_thing(struct things *t)
{
    if (t->n == t->room) {
        t->room = t->room != 0 ? 2 * t->room : 256;
        t->at = realloc(t->at, t->room * sizeof t->at[0]);
        CHECK(t->at != NULL);
    }
    t->at[t->n] = (struct thing){0};
    return &t->at[t->n++];
}

/* --- looking ---------------------------------------------------------------------------------- */

static bool digest_of_cache_name(const char *name, struct digest *out)
{
    return strlen(name) >= DIGEST_HEX && digest_parse(slice_of(name, DIGEST_HEX), out);
}

static void see_file(struct things *t, enum thing_kind kind, const FTSENT *f)
{
    struct digest key;
    struct thing *x;

    if (f->fts_info != FTS_F || !digest_of_cache_name(f->fts_name, &key)) {
        return;
    }
    x = add_thing(t);
    x->kind = kind;
    x->key = key;
    x->size_bytes = (uint64_t)f->fts_statp->st_blocks * 512;
    x->used_unix_s = (uint64_t)f->fts_statp->st_ctim.tv_sec; /* mtime of a blob says nothing */
}

/* A tree is one thing; what it holds adds up. Level 1 is trees/<key>. */
static void see_in_tree(struct things *t, const FTSENT *f)
{
    struct digest key;

    if (f->fts_level == 1 && f->fts_info == FTS_D && digest_of_cache_name(f->fts_name, &key)) {
        struct thing *x = add_thing(t);
        x->kind = THING_TREE;
        x->key = key;
        x->used_unix_s = (uint64_t)f->fts_statp->st_ctim.tv_sec;
    } else if (f->fts_level > 1 && f->fts_info == FTS_F && t->n > 0 &&
               t->at[t->n - 1].kind == THING_TREE) {
        t->at[t->n - 1].size_bytes += (uint64_t)f->fts_statp->st_blocks * 512;
    }
}

static int scan_cache_folder(struct local_cache *s, enum thing_kind kind, const char *folder,
                             struct things *t, struct err *e)
{
    char path[PATH_MAX];
    char *const roots[] = {path, NULL};
    FTS *walk;
    FTSENT *f;

    snprintf(path, sizeof path, "%s/%s", local_cache_dir(s), folder);
    walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (walk == NULL) {
        return err_sys(e, "%s", path);
    }
    while ((f = fts_read(walk)) != NULL) {
        if (kind == THING_TREE) {
            see_in_tree(t, f);
        } else {
            see_file(t, kind, f);
        }
    }
    fts_close(walk);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return memcmp(((const struct thing *)a)->key.b, ((const struct thing *)b)->key.b, DIGEST_BYTES);
}

static int by_use(const void *a, const void *b)
{
    uint64_t x = ((const struct thing *)a)->used_unix_s;
    uint64_t y = ((const struct thing *)b)->used_unix_s;

    return (x > y) - (x < y);
}

static void use(struct things *t, const struct digest *d, uint64_t at_unix_s)
{
    struct thing probe = {.key = *d};
    struct thing *hit = bsearch(&probe, t->at, t->n, sizeof t->at[0], by_key);

    /* A blob and its tree have the same key and stand side by side. */
    while (hit != NULL && hit > t->at && by_key(hit - 1, &probe) == 0) {
        hit--;
    }
    for (; hit != NULL && hit < t->at + t->n && by_key(hit, &probe) == 0; hit++) {
        hit->used_unix_s = max_u64(hit->used_unix_s, at_unix_s);
    }
}

/* A list of files that was used is a use of each of them (agent/pull/artifact.c): a line for all
 * would be a journal of its own. */
static void learn_list(struct things *t, const char *path, uint64_t used_unix_s)
{
    json_t *o = json_load_file(path, 0, NULL);
    const json_t *files = json_object_get(o, "files");
    struct digest d;

    for (size_t i = 0; i < json_array_size(files); i++) {
        if (digest_parse(jread_text(json_array_get(files, i), "sha256"), &d)) {
            use(t, &d, used_unix_s);
        }
    }
    json_decref(o);
}

static void learn_lists(const struct local_cache *s, struct things *t)
{
    char path[PATH_MAX];
    char one[2 * PATH_MAX];
    const struct dirent *it;
    struct stat st;
    DIR *d;

    snprintf(path, sizeof path, "%s/known", local_cache_dir(s));
    d = opendir(path);
    while (d != NULL && (it = readdir(d)) != NULL) {
        if (fstatat(dirfd(d), it->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
            snprintf(one, sizeof one, "%s/%s", path, it->d_name);
            learn_list(t, one, (uint64_t)st.st_mtim.tv_sec);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

static void learn_uses(struct local_cache *s, struct things *t)
{
    struct buf text = BUF_INIT(LOCAL_CACHE_JOURNAL_MAX);
    struct local_cache_use line;
    struct slice rest;

    if (t->n == 0) {
        return;
    }
    qsort(t->at, t->n, sizeof t->at[0], by_key);
    if (local_cache_journal_read(s, &text) == 0) {
        rest = buf_slice(&text);
        while (local_cache_journal_line(&rest, &line)) {
            use(t, &line.digest, line.at_unix_s);
        }
    }
    buf_free(&text);
    learn_lists(s, t);
}

/* A download is one thing: its bytes, its state, and what of that a crash left behind. */
static int look_partials(struct local_cache *s, struct things *t, struct err *e)
{
    struct things files = {0};
    struct thing *x = NULL;
    int rc = scan_cache_folder(s, THING_PARTIAL, "partial", &files, e);

    if (files.n != 0) {
        qsort(files.at, files.n, sizeof files.at[0], by_key);
    }
    for (size_t i = 0; i < files.n; i++) {
        const struct thing *f = &files.at[i];
        if (x == NULL || by_key(x, f) != 0) {
            x = add_thing(t);
            *x = *f;
        } else {
            x->size_bytes += f->size_bytes;
            x->used_unix_s = max_u64(x->used_unix_s, f->used_unix_s);
        }
    }
    free(files.at);
    return rc;
}

static int look_all(struct local_cache *s, struct things *t, struct err *e)
{
    int rc = scan_cache_folder(s, THING_BLOB, "blobs/sha256", t, e);

    rc = rc != 0 ? rc : scan_cache_folder(s, THING_TREE, "trees", t, e);
    rc = rc != 0 ? rc : look_partials(s, t, e);
    learn_uses(s, t);
    return rc;
}

static void count_cache_thing(struct local_cache_totals *to, const struct thing *x)
{
    switch (x->kind) {
    case THING_BLOB:
        to->blobs++;
        to->blob_bytes += x->size_bytes;
        break;
    case THING_TREE:
        to->trees++;
        to->tree_bytes += x->size_bytes;
        break;
    case THING_PARTIAL:
        to->partials++;
        to->partial_bytes += x->size_bytes;
        break;
    }
}

int local_cache_measure(struct local_cache *s, struct local_cache_totals *out, struct err *e)
{
    struct things t = {0};
    int rc = look_all(s, &t, e);

    *out = (struct local_cache_totals){0};
    for (size_t i = 0; i < t.n; i++) {
        count_cache_thing(out, &t.at[i]);
    }
    free(t.at);
    return rc;
}

/* --- removing --------------------------------------------------------------------------------- */

/* Whatever of it is there: .state first, which speaks of the rest. */
static int remove_partial(struct local_cache *s, const struct digest *key, struct err *e)
{
    char path[PATH_MAX];
    char hex[DIGEST_HEX + 1];
    const struct dirent *it;
    int rc = 0;
    DIR *d;

    local_cache_partial_path(s, key, ".state", path);
    unlink(path);
    digest_format(key, hex);
    snprintf(path, sizeof path, "%s/partial", local_cache_dir(s));
    d = opendir(path);
    if (d == NULL) {
        return err_sys(e, "%s", path);
    }
    while (rc == 0 && (it = readdir(d)) != NULL) {
        if (strncmp(it->d_name, hex, DIGEST_HEX) == 0 && unlinkat(dirfd(d), it->d_name, 0) == -1 &&
            errno != ENOENT) {
            rc = err_sys(e, "%s/%s", path, it->d_name);
        }
    }
    closedir(d);
    return rc;
}

static int remove_thing(struct local_cache *s, const struct thing *x, struct err *e)
{
    char path[PATH_MAX];
    char gone[PATH_MAX + 8];

    switch (x->kind) {
    case THING_BLOB:
        local_cache_blob_path(s, &x->key, path);
        return unlink(path) == -1 && errno != ENOENT ? err_sys(e, "%s", path) : 0;
    case THING_TREE: /* renamed first: half a tree has no right name */
        local_cache_tree_path(s, &x->key, path);
        snprintf(gone, sizeof gone, "%s.new~", path);
        if (rename(path, gone) == -1 && errno != ENOENT) {
            return err_sys(e, "%s", path);
        }
        stamp_remove(path);
        return dir_remove_tree(gone, e);
    case THING_PARTIAL:
        return remove_partial(s, &x->key, e);
    }
    return 0;
}

static int take_away(struct local_cache *s, const struct thing *x,
                     struct local_cache_totals *removed, struct err *e)
{
    struct local_cache_lock *lock = NULL;
    int rc = local_cache_try_lock(s, &x->key, false, &lock, e);

    if (rc == E_BUSY) {
        return 0; /* in use */
    }
    rc = rc != 0 ? rc : remove_thing(s, x, e);
    if (rc == 0) {
        count_cache_thing(removed, x);
        local_cache_retire(s, &x->key, &lock);
    }
    local_cache_unlock(&lock);
    return rc;
}

static int compare_thing_digests(const void *a, const void *b)
{
    return memcmp(a, b, DIGEST_BYTES);
}

static int learn_pins(struct local_cache *s, struct things *t, struct err *e)
{
    struct digest *pin = NULL;
    size_t n = 0;
    int rc = pins_all(s, &pin, &n, e);

    for (size_t i = 0; rc == 0 && n > 0 && i < t->n; i++) {
        struct thing *x = &t->at[i];
        x->pinned = bsearch(x->key.b, pin, n, sizeof pin[0], compare_thing_digests) != NULL;
    }
    free(pin);
    return rc;
}

/* The newer half: hints grow worthless with age. */
static void halve_journal(struct local_cache *s)
{
    struct buf text = BUF_INIT(LOCAL_CACHE_JOURNAL_MAX);
    struct newfile *f = NULL;
    struct slice rest;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/journal", local_cache_dir(s));
    if (local_cache_journal_read(s, &text) == 0 && text.n > JOURNAL_LARGE &&
        newfile_open(path, 0644, &f, NULL) == 0) {
        rest = slice_from(buf_slice(&text), text.n / 2);
        (void)slice_cut(&rest, '\n');
        newfile_write(f, rest.p, rest.n);
        if (newfile_commit(&f, NULL) != 0) {
            log_warn("local_cache.journal", "path=%s the journal could not be shortened", path);
        }
    }
    buf_free(&text);
}

/* What is known of repositories (agent/pull/artifact.c); a use renews the mtime. */
static void forget_known(const struct local_cache *s, uint64_t now_unix_s)
{
    char path[PATH_MAX];
    const struct dirent *it;
    struct stat st;
    DIR *d;

    snprintf(path, sizeof path, "%s/known", local_cache_dir(s));
    d = opendir(path);
    while (d != NULL && (it = readdir(d)) != NULL) {
        if (fstatat(dirfd(d), it->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            now_unix_s > (uint64_t)st.st_mtim.tv_sec + KNOWN_AGE_S) {
            unlinkat(dirfd(d), it->d_name, 0);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

int local_cache_gc(struct local_cache *s, const struct local_cache_gc_params *w,
                   struct local_cache_totals *removed, struct err *e)
{
    struct things t = {0};
    uint64_t total = 0;
    int rc = look_all(s, &t, e);

    *removed = (struct local_cache_totals){0};
    rc = rc != 0 ? rc : learn_pins(s, &t, e);
    for (size_t i = 0; i < t.n; i++) {
        total += t.at[i].size_bytes;
    }
    /* Their links keep bytes that nobody counts. */
    spare_sweep(s,
                total > w->keep_bytes
                    ? UINT64_MAX
                    : w->now_unix_s - min_u64(min_u64(SPARE_AGE_S, w->keep_age_s), w->now_unix_s));
    qsort(t.at, t.n, t.at != NULL ? sizeof t.at[0] : 1, by_use);
    for (size_t i = 0; rc == 0 && i < t.n; i++) {
        const struct thing *x = &t.at[i];
        uint64_t age = w->now_unix_s > x->used_unix_s ? w->now_unix_s - x->used_unix_s : 0;
        uint64_t may =
            x->kind == THING_PARTIAL ? min_u64(PARTIAL_AGE_S, w->keep_age_s) : w->keep_age_s;

        if (!x->pinned && (age > may || total > w->keep_bytes)) {
            uint64_t before = removed->blobs + removed->trees + removed->partials;
            rc = take_away(s, x, removed, e);
            total -=
                removed->blobs + removed->trees + removed->partials > before ? x->size_bytes : 0;
        }
    }
    free(t.at);
    halve_journal(s);
    forget_known(s, w->now_unix_s);
    return rc;
}
