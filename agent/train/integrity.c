#include "agent/train/integrity.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/manifest.h"
#include "agent/train/tensorfiles.h"
#include "common/os/newfile.h"

enum { LEAST_FILES = 4 };

struct checked {
    char *name;
    struct digest want;
    struct chunk_list chunks; /* count 0: none */
    bool *good;               /* of each chunk */
    bool listed;
    int fd; /* -1: not open yet */
};

struct integrity {
    char *dir;
    struct checked *file;
    size_t files, room;
    char *chunk; /* one of them, read */
    uint64_t read_bytes;
};

static int add_checked_file(void *arg, const char *dir, const char *name, const struct digest *want,
                            struct err *e)
{
    struct integrity *i = arg;

    (void)dir;
    (void)e;
    if (i->files == i->room) {
        i->room = 2 * i->room + 16;
        i->file = realloc(i->file, i->room * sizeof *i->file);
        CHECK(i->file != NULL);
    }
    i->file[i->files++] = (struct checked){.name = mem_strdup(name), .want = *want, .fd = -1};
    return 0;
}

static struct checked *find_checked_file(const struct integrity *i, const char *name)
{
    for (size_t f = 0; f < i->files; f++) {
        if (strcmp(i->file[f].name, name) == 0) {
            return &i->file[f];
        }
    }
    return NULL;
}

static int read_list(const struct integrity *i, const char *name, const struct digest *want,
                     struct checked *of, struct err *e)
{
    struct buf text = BUF_INIT(CHUNK_LIST_MAX_BYTES);
    char path[PATH_MAX];
    struct digest got;
    int rc;

    snprintf(path, sizeof path, "%s/%s", i->dir, name);
    rc = buf_read_file(&text, path, e);
    if (rc == 0) {
        digest_of(buf_slice(&text), &got);
        if (!digest_eq(&got, want)) {
            rc = err_set(e, E_CORRUPT,
                         "%s: the file differs from the manifest; it is damaged or was changed",
                         path);
        } else if (chunks_decode(buf_slice(&text), &of->chunks, e) != 0 ||
                   of->chunks.chunk_bytes != CHUNK_BYTES) {
            rc = err_set(e, E_CORRUPT, "%s: not a chunk list", path);
        } else if (!digest_eq(&of->chunks.whole, &of->want)) {
            rc = err_set(e, E_CORRUPT,
                         "%s: the chunk list belongs to another file than the manifest's", path);
        }
    }
    if (rc == 0) {
        of->listed = true;
        of->good = mem_array(of->chunks.count + 1, sizeof *of->good);
    }
    buf_free(&text);
    return rc;
}

/* A file is there, and as long as its list says. */
static int check_size(const struct integrity *i, const struct checked *c, struct err *e)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", i->dir, c->name);
    if (stat(path, &st) == -1) {
        return err_sys(e, "%s", path);
    }
    return S_ISREG(st.st_mode) && (uint64_t)st.st_size == c->chunks.size_bytes
               ? 0
               : err_set(e, E_CORRUPT,
                         "%s: the file differs from the manifest; it is damaged or was changed",
                         path);
}

int integrity_open(const char *dir, struct integrity **out, struct err *e)
{
    struct integrity *i = NEW(struct integrity);
    int rc;

    *out = NULL;
    i->dir = mem_strdup(dir);
    rc = manifest_each(dir, LEAST_FILES, add_checked_file, i, e);
    for (size_t f = 0; rc == 0 && f < i->files; f++) {
        struct slice name = slice_str(i->file[f].name), suffix = SLICE(CHUNK_LIST_SUFFIX);
        char of[NAME_MAX];
        struct checked *c;

        if (!slice_ends(name, suffix)) {
            continue;
        }
        snprintf(of, sizeof of, SLICE_FMT, SLICE_ARG(slice_first(name, name.n - suffix.n)));
        c = find_checked_file(i, of);
        rc =
            c == NULL || c->listed
                ? err_set(e, E_CORRUPT, "%s/%s: the file of this chunk list is not in the manifest",
                          dir, i->file[f].name)
                : read_list(i, i->file[f].name, &i->file[f].want, c, e);
        rc = rc != 0 ? rc : check_size(i, c, e);
    }
    if (rc != 0) {
        integrity_close(&i);
    }
    *out = i;
    return rc;
}

void integrity_close(struct integrity **ip)
{
    struct integrity *i = *ip;

    if (i == NULL) {
        return;
    }
    *ip = NULL;
    for (size_t f = 0; f < i->files; f++) {
        if (i->file[f].fd != -1) {
            close(i->file[f].fd);
        }
        chunks_free(&i->file[f].chunks);
        free(i->file[f].good);
        free(i->file[f].name);
    }
    free(i->file);
    free(i->chunk);
    free(i->dir);
    free(i);
}

int integrity_rest(struct integrity *i, struct err *e)
{
    int rc = 0;

    for (size_t f = 0; rc == 0 && f < i->files; f++) {
        if (!i->file[f].listed) {
            rc = manifest_verify_file(i->dir, i->file[f].name, &i->file[f].want, e);
        }
    }
    return rc;
}

static int open_checked_file(const struct integrity *i, struct checked *c, struct err *e)
{
    char path[PATH_MAX];

    if (c->fd == -1) {
        snprintf(path, sizeof path, "%s/%s", i->dir, c->name);
        c->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    return c->fd != -1 ? 0 : err_sys(e, "%s/%s", i->dir, c->name);
}

static int verify_chunk(struct integrity *i, struct checked *c, uint64_t at, struct err *e)
{
    uint64_t from = at * CHUNK_BYTES;
    size_t n = (size_t)min_u64(CHUNK_BYTES, c->chunks.size_bytes - from);
    struct digest got;
    int rc = open_checked_file(i, c, e);

    i->chunk = i->chunk != NULL ? i->chunk : mem_new(CHUNK_BYTES);
    rc = rc != 0 ? rc : fd_pread_all(c->fd, i->chunk, n, from, e);
    if (rc != 0) {
        return err_prefix(e, "%s/%s", i->dir, c->name);
    }
    i->read_bytes += n;
    digest_of(slice_of(i->chunk, n), &got);
    if (!digest_eq(&got, &c->chunks.chunk[at])) {
        return err_set(e, E_CORRUPT,
                       "%s/%s: the file differs from the manifest in the %zu bytes at offset %llu",
                       i->dir, c->name, n, (unsigned long long)from);
    }
    c->good[at] = true;
    return 0;
}

int integrity_range(struct integrity *i, const char *name, uint64_t from, uint64_t n, struct err *e)
{
    struct checked *c = find_checked_file(i, name);
    int rc = 0;

    if (c == NULL) {
        return err_set(e, E_CORRUPT, "%s/%s: the file is not in the manifest", i->dir, name);
    }
    if (!c->listed || n == 0) {
        return 0;
    }
    if (from > c->chunks.size_bytes || n > c->chunks.size_bytes - from) {
        return err_set(e, E_CORRUPT, "%s/%s: the file is shorter than its header says", i->dir,
                       name);
    }
    for (uint64_t at = from / CHUNK_BYTES; rc == 0 && at <= (from + n - 1) / CHUNK_BYTES; at++) {
        rc = c->good[at] ? 0 : verify_chunk(i, c, at, e);
    }
    return rc;
}

const char *integrity_file(const struct integrity *i, size_t at)
{
    return at < i->files ? i->file[at].name : NULL;
}

bool integrity_has(const struct integrity *i, const char *name)
{
    return find_checked_file(i, name) != NULL;
}

uint64_t integrity_read_bytes(const struct integrity *i)
{
    return i->read_bytes;
}
