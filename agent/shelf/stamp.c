#include "agent/shelf/stamp.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hash/digest.h"
#include "common/os/newfile.h"

enum { STAMP_MAX = 256, WRITE_BITS = 0222 };

struct stamp {
    uint64_t entries, bytes;
    uint64_t
        sum[DIGEST_BYTES /
            sizeof(uint64_t)]; /* of the entries' digests: in whatever order a folder lists them */
};

static void stamp_path(const char *path, char out[PATH_MAX + 8])
{
    snprintf(out, PATH_MAX + 8, "%s.stamp", path);
}

/* The top folder's ctime is left out: it gets its name last. Inode numbers differ between mounts of some file systems. */
static void add_entry(struct stamp *x, const FTSENT *f, const char *name, struct buf *text)
{
    const struct stat *st = f->fts_statp;
    uint64_t part[ARRAY_LEN(x->sum)];
    struct digest d;

    buf_clear(text);
    buf_addf(text, "%s%c%o %" PRId64 " %" PRId64 ".%09ld", name, 0, (unsigned)st->st_mode,
             S_ISDIR(st->st_mode) ? 0 : (int64_t)st->st_size, (int64_t)st->st_mtim.tv_sec,
             st->st_mtim.tv_nsec);
    if (f->fts_level > 0) {
        buf_addf(text, " %" PRId64 ".%09ld", (int64_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
    }
    digest_of(buf_slice(text), &d);
    memcpy(part, d.b, sizeof part);
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        x->sum[i] += part[i];
    }
    x->entries++;
    x->bytes += S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
}

static int take_write_bits(const FTSENT *f, struct err *e)
{
    mode_t mode = f->fts_statp->st_mode & 07777;

    if ((mode & WRITE_BITS) != 0 && (chmod(f->fts_path, mode & ~(mode_t)WRITE_BITS) == -1 ||
                                     lstat(f->fts_path, f->fts_statp))) {
        return err_sys(e, "%s", f->fts_path);
    }
    return 0;
}

static int one(struct stamp *x, const FTSENT *f, size_t skip, bool seal, struct buf *text,
               struct err *e)
{
    int rc = 0;

    switch (f->fts_info) {
    case FTS_DP:
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        errno = f->fts_errno;
        return err_sys(e, "%s", f->fts_path);
    case FTS_D:
        rc = seal ? take_write_bits(f, e) : 0;
        break;
    default:
        break;
    }
    if (rc == 0) {
        add_entry(x, f, f->fts_path + skip, text);
    }
    return rc != 0 ? rc : text->rc;
}

static int look(const char *tree, bool seal, struct stamp *x, struct err *e)
{
    char *const roots[] = {mem_strdup(tree), NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    struct buf text = BUF_INIT(2 * PATH_MAX);
    FTSENT *f;
    int rc = walk == NULL ? err_sys(e, "%s", tree) : 0;

    *x = (struct stamp){0};
    while (rc == 0 && (f = fts_read(walk)) != NULL) {
        rc = one(x, f, strlen(tree), seal, &text, e);
    }
    if (rc == 0 && errno != 0) { /* set to 0 at the end of the walk */
        rc = err_sys(e, "%s", tree);
    }
    if (walk != NULL) {
        fts_close(walk);
    }
    buf_free(&text);
    free(roots[0]);
    return rc;
}

static void format(const struct stamp *x, struct buf *out)
{
    buf_addf(out, "stamp1 %" PRIu64 " %" PRIu64 " ", x->entries, x->bytes);
    for (size_t i = 0; i < ARRAY_LEN(x->sum); i++) {
        buf_addf(out, "%016" PRIx64, x->sum[i]);
    }
    buf_str(out, "\n");
}

int stamp_seal(const char *tree, const char *path, struct err *e)
{
    char name[PATH_MAX + 8];
    struct buf text = BUF_INIT(STAMP_MAX);
    struct newfile *f = NULL;
    struct stamp x;
    int rc = look(tree, true, &x, e);

    stamp_path(path, name);
    if (rc == 0) {
        rc = newfile_open(name, 0444, &f, e);
    }
    if (rc == 0) {
        format(&x, &text);
        newfile_write(f, text.p, text.n);
        rc = newfile_commit(&f, e);
    }
    buf_free(&text);
    return rc;
}

int stamp_check(const char *path, struct err *e)
{
    char name[PATH_MAX + 8];
    struct buf was = BUF_INIT(STAMP_MAX);
    struct buf is = BUF_INIT(STAMP_MAX);
    struct stamp x;
    int rc;

    stamp_path(path, name);
    rc = buf_read_file(&was, name, e);
    if (rc == E_NOTFOUND || rc == E_TOOBIG) {
        rc = err_set(e, E_CHANGED, "%s: has no stamp", path);
    }
    rc = rc != 0 ? rc : look(path, false, &x, e);
    if (rc == 0) {
        format(&x, &is);
        if (!slice_eq(buf_slice(&was), buf_slice(&is))) {
            rc = err_set(e, E_CHANGED, "%s: was changed after it was unpacked", path);
        }
    }
    buf_free(&is);
    buf_free(&was);
    return rc;
}

void stamp_remove(const char *path)
{
    char name[PATH_MAX + 8];

    stamp_path(path, name);
    unlink(name);
}
