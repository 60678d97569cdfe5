#include "agent/cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <uthash.h>

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { SEALED_MTIME = 1, LOCAL_CACHE_DIR_MAX = PATH_MAX - 256 };

struct local_cache {
    char *dir;
    struct journal *journal;
    _Atomic bool no_clone;
};

struct local_cache_lock {
    int fd;
};

static const char *const folders[] = {"blobs/sha256", "partial", "trees"};

/* --- the journal ------------------------------------------------------------------------------ */

/* Read once and held, since a folder of ten thousand files asks ten thousand times; what has been
 * added since is read on top. */
struct text { /* lines, whole; never moved, the table points into it */
    struct list node;
    size_t n;
    char bytes[];
};

struct known { /* the last use of a URL */
    UT_hash_handle hh;
    struct slice etag;
    struct digest digest;
};

struct journal {
    char path[PATH_MAX];
    int fd; /* to add to; -1: not opened yet */
    struct list texts;
    struct known *known; /* uthash, by URL */
    ino_t inode;         /* of the file that was read */
    uint64_t read_bytes;
};

static struct journal *journal_open(const char *dir)
{
    struct journal *j = NEW(struct journal);

    snprintf(j->path, sizeof j->path, "%s/journal", dir);
    j->fd = -1;
    list_init(&j->texts);
    return j;
}

static void forget_journal(struct journal *j)
{
    struct known *k;
    struct known *next;
    struct list *n;

    HASH_ITER(hh, j->known, k, next)
    {
        HASH_DEL(j->known, k);
        free(k);
    }
    while ((n = list_pop_front(&j->texts)) != NULL) {
        free(LIST_ITEM(n, struct text, node));
    }
    j->inode = 0;
    j->read_bytes = 0;
}

static void journal_close(struct journal **jp)
{
    struct journal *j = *jp;

    if (j != NULL) {
        *jp = NULL;
        forget_journal(j);
        if (j->fd != -1) {
            close(j->fd);
        }
        free(j);
    }
}

/* --- the folder ------------------------------------------------------------------------------- */

/* Whoever may open a file may lock it, for reading too: nobody else is to keep jobs waiting. */
static int make_locks(const char *dir, struct err *e)
{
    char path[PATH_MAX];
    struct stat st;
    int rc;

    snprintf(path, sizeof path, "%s/locks", dir);
    rc = dir_make(path, 0700, e);
    if (rc == 0 && stat(path, &st) == 0 && (st.st_mode & 077) != 0) {
        (void)!chmod(path, 0700); /* of an earlier version; not ours, perhaps, or read-only */
    }
    return rc;
}

int local_cache_open(const char *dir, struct local_cache **out, struct err *e)
{
    struct local_cache *s = NEW(struct local_cache);
    char path[PATH_MAX];
    int rc = 0;

    *out = NULL;
    if (strlen(dir) > LOCAL_CACHE_DIR_MAX) {
        rc = err_set(e, E_USAGE, "the path of the local cache is too long");
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        rc = dir_make(path, 0755, e);
    }
    rc = rc != 0 ? rc : make_locks(dir, e);
    if (rc != 0) {
        free(s);
        return rc;
    }
    s->dir = mem_strdup(dir);
    s->journal = journal_open(s->dir);
    *out = s;
    return 0;
}

void local_cache_close(struct local_cache **sp)
{
    struct local_cache *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        journal_close(&s->journal);
        free(s->dir);
        free(s);
    }
}

const char *local_cache_dir(const struct local_cache *s)
{
    return s->dir;
}

void local_cache_key_of_url(struct slice url, struct digest *out)
{
    struct buf text = BUF_INIT(1 << 20);

    buf_str(&text, "url ");
    buf_adds(&text, url);
    digest_of(buf_slice(&text), out);
    buf_free(&text);
}

void local_cache_blob_path(const struct local_cache *s, const struct digest *d, char out[PATH_MAX])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    snprintf(out, PATH_MAX, "%s/blobs/sha256/%.2s/%s", s->dir, hex, hex);
}

void local_cache_tree_path(const struct local_cache *s, const struct digest *key,
                           char out[PATH_MAX])
{
    char hex[DIGEST_HEX + 1];

    digest_format(key, hex);
    snprintf(out, PATH_MAX, "%s/trees/%s", s->dir, hex);
}

void local_cache_partial_path(const struct local_cache *s, const struct digest *key,
                              const char *suffix, char out[PATH_MAX])
{
    char hex[DIGEST_HEX + 1];

    digest_format(key, hex);
    snprintf(out, PATH_MAX, "%s/partial/%s%s", s->dir, hex, suffix);
}

bool local_cache_name_ok(struct slice name)
{
    if (name.n == 0 || name.n > LOCAL_CACHE_NAME_MAX || name.p[name.n - 1] == '/') {
        return false;
    }
    for (size_t i = 0; i < name.n; i++) {
        if ((uint8_t)name.p[i] < 0x20 || name.p[i] == 0x7f) {
            return false;
        }
    }
    while (name.n > 0) {
        struct slice seg = slice_cut(&name, '/');
        if (seg.n == 0 || seg.n > LOCAL_CACHE_SEGMENT_MAX || slice_eq(seg, SLICE(".")) ||
            slice_eq(seg, SLICE(".."))) {
            return false;
        }
    }
    return true;
}

int local_cache_mark(int fd, struct err *e)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = SEALED_MTIME}};

    return futimens(fd, times) == -1 ? err_sys(e, "utimens") : 0;
}

/* Somebody touched it: what is in it now decides. */
static int look_again(int fd, const char *path, const struct digest *d, uint64_t size_bytes,
                      struct err *e)
{
    struct digest got;
    int rc = digest_of_fd(fd, size_bytes, &got, e);

    if (rc != 0) {
        return rc;
    }
    if (!digest_eq(&got, d)) {
        log_warn("local_cache.damaged",
                 "path=%s the file was changed after it was verified; it is removed", path);
        unlink(path);
        return err_set(e, E_NOTFOUND, "%s: the file is damaged", path);
    }
    (void)!local_cache_mark(fd, NULL); /* not ours, perhaps: then it is hashed every time */
    return 0;
}

int local_cache_find(struct local_cache *s, const struct digest *d, uint64_t *size_bytes,
                     struct err *e)
{
    char path[PATH_MAX];
    struct stat st;
    int rc = 0;
    int fd;

    local_cache_blob_path(s, d, path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1 || fstat(fd, &st) == -1) {
        rc = err_sys(e, "%s", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, E_CORRUPT, "%s: not a regular file", path);
    } else if (st.st_mtim.tv_sec != SEALED_MTIME || st.st_mtim.tv_nsec != 0) {
        rc = look_again(fd, path, d, (uint64_t)st.st_size, e);
    }
    if (rc == 0) {
        *size_bytes = (uint64_t)st.st_size;
    }
    if (fd != -1) {
        close(fd);
    }
    return rc;
}

/* From so many on one syncfs() costs less than an fsync() each. */
enum { SYNC_TOGETHER = 4 };

static int sync_all(struct local_cache *s, struct err *e)
{
    int fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd == -1 || syncfs(fd) == -1 ? err_sys(e, "%s: sync", s->dir) : 0;

    if (fd != -1) {
        close(fd);
    }
    return rc;
}

static int sync_staged(struct local_cache *s, const struct local_cache_sealing *x, struct err *e)
{
    char path[PATH_MAX];
    int fd;
    int rc;

    local_cache_partial_path(s, &x->key, LOCAL_CACHE_STAGED, path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    rc = fd == -1 || fsync(fd) == -1 ? err_sys(e, "%s: sync", path) : 0;
    if (fd != -1) {
        close(fd);
    }
    return rc;
}

static int seal_data(struct local_cache *s, const struct local_cache_sealing *x, bool sync,
                     struct err *e)
{
    int rc;

    if (x->staged) {
        return sync ? sync_staged(s, x, e) : 0;
    }
    rc = local_cache_mark(x->fd, e);
    if (rc == 0 && sync && fsync(x->fd) == -1) {
        rc = err_sys(e, "fsync");
    }
    return rc;
}

/* A staged file may have been sealed by another process that found it. */
static int rename_part(const char *part, const char *blob, const char *dir, bool staged,
                       struct err *e)
{
    if (rename(part, blob) == 0 ||
        (errno == ENOENT && (mkdir(dir, 0755) == 0 || errno == EEXIST) &&
         rename(part, blob) == 0) ||
        (staged && errno == ENOENT && access(blob, F_OK) == 0)) {
        return 0;
    }
    return err_sys(e, "%s: cannot rename the file", blob);
}

static int seal_name(struct local_cache *s, const struct local_cache_sealing *x, bool sync,
                     struct err *e)
{
    char part[PATH_MAX];
    char state[PATH_MAX];
    char blob[PATH_MAX];
    char dir[PATH_MAX];
    int rc;

    local_cache_partial_path(s, &x->key, x->staged ? LOCAL_CACHE_STAGED : ".part", part);
    local_cache_partial_path(s, &x->key, ".state", state);
    local_cache_blob_path(s, &x->digest, blob);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(blob, '/') - blob), blob);
    rc = rename_part(part, blob, dir, x->staged, e);
    if (rc != 0) {
        return rc;
    }
    if (!x->staged) { /* not before: an own .part that is read-only could not be taken up */
        (void)!fchmod(x->fd, 0444);
        if (!x->stateless) {
            unlink(state);
        }
    }
    return sync ? dir_sync(dir, e) : 0;
}

void local_cache_seal(struct local_cache *s, struct local_cache_sealing *const *all, size_t n)
{
    bool alone = n < SYNC_TOGETHER;
    struct err why = {0};

    for (size_t i = 0; i < n; i++) {
        all[i]->rc = seal_data(s, all[i], alone, &all[i]->why);
    }
    /* Data before name: after a power cut no name may lead to missing bytes. */
    if (!alone && sync_all(s, &why) != 0) {
        for (size_t i = 0; i < n; i++) {
            all[i]->rc = why.code;
            all[i]->why = why;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (all[i]->rc == 0) {
            all[i]->rc = seal_name(s, all[i], alone, &all[i]->why);
        }
    }
}

int local_cache_lost(const char *path, struct err *e)
{
    return errno == ENOENT
               ? err_set(e, E_CHANGED,
                         "%s: the file was removed, possibly by gc; run the command again", path)
               : err_sys(e, "%s", path);
}

/* Reading is enough for a shared one. */
static int open_lock(const char *path, bool shared)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);

    return fd == -1 && shared && (errno == EROFS || errno == EACCES)
               ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
               : fd;
}

int local_cache_try_lock(struct local_cache *s, const struct digest *key, bool shared,
                         struct local_cache_lock **out, struct err *e)
{
    char path[PATH_MAX];
    char hex[DIGEST_HEX + 1];
    struct stat mine;
    struct stat named;
    int fd;

    *out = NULL;
    digest_format(key, hex);
    snprintf(path, sizeof path, "%s/locks/%s", s->dir, hex);
    for (;;) {
        fd = open_lock(path, shared);
        if (fd == -1) {
            return shared && (errno == ENOENT || errno == EACCES) ? 0 : err_sys(e, "%s", path);
        }
        if (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == -1) {
            int rc = errno == EWOULDBLOCK
                         ? err_set(e, E_BUSY, "%s: locked by another process", path)
                         : err_sys(e, "%s: cannot lock the file", path);
            close(fd);
            return rc;
        }
        /* gc removes lock files: a lock on a file without that name locks nobody out. */
        if (fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino) {
            break;
        }
        close(fd);
    }
    *out = NEW(struct local_cache_lock);
    (*out)->fd = fd;
    return 0;
}

void local_cache_retire(struct local_cache *s, const struct digest *key,
                        struct local_cache_lock **lp)
{
    char path[PATH_MAX];
    char hex[DIGEST_HEX + 1];

    if (*lp != NULL) {
        digest_format(key, hex);
        snprintf(path, sizeof path, "%s/locks/%s", s->dir, hex);
        unlink(path);
        local_cache_unlock(lp);
    }
}

void local_cache_unlock(struct local_cache_lock **lp)
{
    struct local_cache_lock *l = *lp;

    if (l != NULL) {
        *lp = NULL;
        close(l->fd);
        free(l);
    }
}

_Atomic bool *local_cache_no_clone(struct local_cache *s)
{
    return &s->no_clone;
}

/* --- uses ------------------------------------------------------------------------------------- */

static bool plain_word(struct slice w)
{
    for (size_t i = 0; i < w.n; i++) {
        if ((uint8_t)w.p[i] <= ' ' || w.p[i] == 0x7f) {
            return false;
        }
    }
    return w.n > 0 && w.n < 1000;
}

void local_cache_note_line(struct buf *lines, const struct digest *d, uint64_t size_bytes,
                           struct slice etag, struct slice url)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    etag = plain_word(etag) ? etag : SLICE("-");
    url =
        plain_word(url) && slice_find(url, '?') < 0 ? url : SLICE("-"); /* queries may be signed */
    buf_addf(lines, "%" PRIu64 " %s %" PRIu64 " " SLICE_FMT " " SLICE_FMT "\n", clock_unix_s(), hex,
             size_bytes, SLICE_ARG(etag), SLICE_ARG(url));
}

void local_cache_note_lines(struct local_cache *s, struct slice lines)
{
    struct journal *j = s->journal;

    if (j->fd == -1) {
        j->fd = open(j->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    }
    /* A hint: one that is lost (to gc, which writes the journal anew) costs a download at most. */
    (void)!write(j->fd, lines.p, lines.n);
}

void local_cache_note(struct local_cache *s, const struct digest *d, uint64_t size_bytes,
                      struct slice etag, struct slice url)
{
    struct buf line = BUF_INIT(4096);

    local_cache_note_line(&line, d, size_bytes, etag, url);
    local_cache_note_lines(s, buf_slice(&line));
    buf_free(&line);
}

bool local_cache_journal_line(struct slice *rest, struct local_cache_use *out)
{
    while (rest->n > 0) {
        struct slice line = slice_cut(rest, '\n');
        struct slice at = slice_cut(&line, ' ');
        struct slice hex = slice_cut(&line, ' ');
        struct slice size = slice_cut(&line, ' ');

        out->etag = slice_cut(&line, ' ');
        out->url = line;
        if (slice_u64(at, &out->at_unix_s) && slice_u64(size, &out->size_bytes) &&
            digest_parse(hex, &out->digest)) {
            return true; /* a torn line is passed over */
        }
    }
    return false;
}

int local_cache_journal_read(const struct local_cache *s, struct buf *out)
{
    return buf_read_file(out, s->journal->path, NULL);
}

static void read_journal_lines(struct journal *j, struct slice lines)
{
    struct local_cache_use use;

    while (local_cache_journal_line(&lines, &use)) {
        struct known *k;

        HASH_FIND(hh, j->known, use.url.p, use.url.n, k);
        if (k == NULL) {
            k = NEW(struct known);
            HASH_ADD_KEYPTR(hh, j->known, use.url.p, use.url.n, k);
        }
        k->etag = use.etag; /* the last line wins */
        k->digest = use.digest;
    }
}

static struct text *read_tail(int fd, uint64_t from, uint64_t end)
{
    size_t n = (size_t)(end - from);
    struct text *t = mem_new(sizeof *t + n);

    t->n = fd_pread_all(fd, t->bytes, n, from, NULL) == 0 ? n : 0;
    while (t->n > 0 && t->bytes[t->n - 1] != '\n') { /* a line that is being written */
        t->n--;
    }
    return t;
}

static void catch_up(struct journal *j)
{
    struct stat st = {0};
    struct text *t;
    int fd = open(j->path, O_RDONLY | O_CLOEXEC);

    if (fd == -1 || fstat(fd, &st) == -1 || st.st_ino != j->inode ||
        (uint64_t)st.st_size < j->read_bytes) {
        forget_journal(j); /* gc has written it anew */
    }
    if (fd == -1) {
        return;
    }
    j->inode = st.st_ino;
    if ((uint64_t)st.st_size > j->read_bytes && st.st_size <= LOCAL_CACHE_JOURNAL_MAX) {
        t = read_tail(fd, j->read_bytes, (uint64_t)st.st_size);
        if (t->n == 0) {
            free(t);
        } else {
            j->read_bytes += t->n;
            list_push_back(&j->texts, &t->node);
            read_journal_lines(j, slice_of(t->bytes, t->n));
        }
    }
    close(fd);
}

bool local_cache_recall(struct local_cache *s, struct slice url, struct slice etag,
                        struct digest *out)
{
    struct known *k = NULL;

    if (!plain_word(etag) || !plain_word(url)) {
        return false;
    }
    catch_up(s->journal);
    HASH_FIND(hh, s->journal->known, url.p, url.n, k);
    if (k == NULL || !slice_eq(k->etag, etag)) {
        return false;
    }
    *out = k->digest;
    return true;
}
