#include "agent/shelf/journal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <uthash.h>

#include "agent/shelf/private.h"
#include "common/base/list.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

/* Read once and held, since a folder of ten thousand files asks ten thousand times; what has been added since is read on top. */
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

struct journal *journal_open(const char *dir)
{
    struct journal *j = NEW(struct journal);

    snprintf(j->path, sizeof j->path, "%s/journal", dir);
    j->fd = -1;
    list_init(&j->texts);
    return j;
}

static void forget(struct journal *j)
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

void journal_close(struct journal **jp)
{
    struct journal *j = *jp;

    if (j != NULL) {
        *jp = NULL;
        forget(j);
        if (j->fd != -1) {
            close(j->fd);
        }
        free(j);
    }
}

/* --- adding --- */

static bool plain_word(struct slice w)
{
    for (size_t i = 0; i < w.n; i++) {
        if ((uint8_t)w.p[i] <= ' ' || w.p[i] == 0x7f) {
            return false;
        }
    }
    return w.n > 0 && w.n < 1000;
}

void shelf_note_line(struct buf *lines, const struct digest *d, uint64_t size_bytes,
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

void shelf_note_lines(struct shelf *s, struct slice lines)
{
    struct journal *j = s->journal;

    if (j->fd == -1) {
        j->fd = open(j->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    }
    /* A hint: one that is lost (to gc, which writes the journal anew) costs a download at most. */
    (void)!write(j->fd, lines.p, lines.n);
}

void shelf_note(struct shelf *s, const struct digest *d, uint64_t size_bytes, struct slice etag,
                struct slice url)
{
    struct buf line = BUF_INIT(4096);

    shelf_note_line(&line, d, size_bytes, etag, url);
    shelf_note_lines(s, buf_slice(&line));
    buf_free(&line);
}

bool journal_line(struct slice *rest, struct journal_use *out)
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

int journal_read(const struct journal *j, struct buf *out)
{
    return buf_read_file(out, j->path, NULL);
}

const char *journal_path(const struct journal *j)
{
    return j->path;
}

/* --- recalling --- */

static void learn(struct journal *j, struct slice lines)
{
    struct journal_use use;

    while (journal_line(&lines, &use)) {
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
        forget(j); /* gc has written it anew */
    }
    if (fd == -1) {
        return;
    }
    j->inode = st.st_ino;
    if ((uint64_t)st.st_size > j->read_bytes && st.st_size <= JOURNAL_MAX) {
        t = read_tail(fd, j->read_bytes, (uint64_t)st.st_size);
        if (t->n == 0) {
            free(t);
        } else {
            j->read_bytes += t->n;
            list_push_back(&j->texts, &t->node);
            learn(j, slice_of(t->bytes, t->n));
        }
    }
    close(fd);
}

bool shelf_recall(struct shelf *s, struct slice url, struct slice etag, struct digest *out)
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
