#include "agent/publish/publish.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

#include "agent/ask.h"
#include "agent/publish/files.h"
#include "agent/cache/cache.h"
#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/codec/jread.h"
#include "common/codec/progress.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    TICK_MS = 100,
    ANSWER_MAX = 64 << 20, /* the listing of a tree's top */
    FEW_TRIES = 2,         /* of a mirror, as long as there is another one */
};

/* --- which upload a publish is at, so that one that was killed goes on instead of sending
 * everything again.
 *
 * One small file in the state folder, named by where to and by what is sent (names, sizes,
 * digests): other content never meets an old upload. It is locked while open; a second publish of
 * the same at the same time gets none, and opens an upload of its own. A memo is a convenience:
 * lost or torn, the publish begins anew, so nothing is synced.
 *
 * owns     memo_close() frees; NULL is fine for every call, and remembers nothing
 * threads  one at a time; blocks */

enum { LOCATION_MAX = 8 << 10, STALE_S = 2 * 24 * 3600 }; /* mirrors drop uploads after a day */

struct memo {
    int fd;
    char path[PATH_MAX];
    struct buf location;
};

static void name_of_manifest(struct slice to, const struct publish_files *files,
                             char hex[DIGEST_HEX + 1])
{
    struct buf all = BUF_INIT(SIZE_MAX);
    struct digest d;

    buf_adds(&all, to);
    for (size_t i = 0; i < files->n; i++) {
        digest_format(&files->at[i].digest, hex);
        buf_byte(&all, '\0');
        buf_adds(&all, files->at[i].name);
        buf_byte(&all, '\0');
        buf_str(&all, hex);
    }
    digest_of(buf_slice(&all), &d);
    digest_format(&d, hex);
    buf_free(&all);
}

static void sweep_publish_dir(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    struct stat st;

    while (d != NULL && (entry = readdir(d)) != NULL) {
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_mtime + STALE_S < (time_t)clock_unix_s()) {
            unlinkat(dirfd(d), entry->d_name, 0);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* One line, its end included: what was torn has none. */
static void read_location(struct memo *m)
{
    char text[LOCATION_MAX];
    ssize_t n = pread(m->fd, text, sizeof text, 0);

    if (n > 1 && text[n - 1] == '\n' && memchr(text, '\0', (size_t)n) == NULL) {
        buf_add(&m->location, text, (size_t)n - 1);
    }
}

static void memo_forget(struct memo *m);
static void memo_close(struct memo **mp);

static struct memo *memo_open(const char *state_dir, struct slice to,
                              const struct publish_files *files)
{
    struct memo *m = NEW(struct memo);
    char hex[DIGEST_HEX + 1];
    char dir[PATH_MAX];
    struct err why;

    m->fd = -1;
    m->location = (struct buf)BUF_INIT(LOCATION_MAX);
    name_of_manifest(to, files, hex);
    snprintf(dir, sizeof dir, "%.3900s/uploads", state_dir);
    snprintf(m->path, sizeof m->path, "%.3950s/%s", dir, hex);
    if (dir_make(dir, 0700, &why) != 0) {
        log_debug("publish.memo", "%s", why.text);
        memo_close(&m);
        return NULL;
    }
    sweep_publish_dir(dir);
    m->fd = open(m->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m->fd == -1 || flock(m->fd, LOCK_EX | LOCK_NB) == -1) {
        memo_close(&m);
        return NULL;
    }
    read_location(m);
    return m;
}

static struct slice memo_location(const struct memo *m)
{
    return m != NULL ? buf_slice(&m->location) : SLICE_NONE;
}

static void memo_keep(struct memo *m, struct slice location)
{
    struct err why;

    if (m == NULL) {
        return;
    }
    buf_clear(&m->location);
    buf_adds(&m->location, location);
    buf_byte(&m->location, '\n');
    if (m->location.n > LOCATION_MAX || ftruncate(m->fd, 0) == -1 ||
        fd_pwrite_all(m->fd, m->location.p, m->location.n, 0, &why) != 0) {
        memo_forget(m);
    }
}

static void memo_forget(struct memo *m)
{
    if (m != NULL) {
        unlink(m->path);
        buf_clear(&m->location);
    }
}

static void memo_close(struct memo **mp)
{
    struct memo *m = *mp;

    if (m != NULL) {
        *mp = NULL;
        if (m->fd != -1) {
            close(m->fd);
        }
        buf_free(&m->location);
        free(m);
    }
}

/* --- one publish under way --- */

struct publisher {
    const struct agent *agent;
    struct event_base *base;
    struct xfer_loop *xfers;
    struct event *tick;
    struct event *stop[2];
    struct arena arena;
    struct publish_files files;
    struct slice name;     /* of the tree: URL at the first mirror */
    unsigned mirror;       /* the one it is published to */
    unsigned tries;        /* how often that may fail in a row */
    bool impatient;        /* a mirror that is too slow is not tried again */
    bool unsure;           /* a mirror failed while it committed */
    struct slice to;       /* URL of the tree */
    struct slice location; /* of the upload */
    struct memo *memo;     /* outlives this process */
    bool resumed;          /* files may be there already, whole or in part */
    struct digest head;    /* the tree's root, of head_read() */
    /* it has nothing but files of these names: the commit lays the others over it */
    bool over_head;
    bool same;      /* it is these files */
    bool committed; /* by an earlier process that did not hear the answer */
    size_t next;
    unsigned running;
    struct upload_slot *upload_slots;
    struct progress *bar;
    uint64_t done_bytes;
    struct ask *ask;
    int rc;
    struct err why;
};

/* The first failure stands, and ends whatever the loop runs. */
static void publisher_fail(struct publisher *p, int rc, const struct err *why)
{
    if (p->rc == 0) {
        p->rc = rc;
        p->why = *why;
        p->why.code = rc;
    }
    event_base_loopbreak(p->base);
}

/* --- what the tree has of the files already: that need not be sent again.
 *
 * Its listing is asked for before the upload. Is it these files to the last byte, all is done. Else
 * the files that it has as they are stay where they are, and the commit lays the rest over that
 * root (If-Match); but only when the tree has nothing besides, for what is to go can only be said
 * by the commit that makes the upload the whole tree. A listing that cannot be had, or is of
 * another kind, says nothing. */

struct named {
    UT_hash_handle hh;
    struct publish_file *file;
};

static struct named *index_files(struct publish_files *files, struct named *all)
{
    struct named *by_name = NULL;

    for (size_t i = 0; i < files->n; i++) {
        struct named *x = &all[i];
        x->file = &files->at[i];
        HASH_ADD_KEYPTR(hh, by_name, x->file->name.p, x->file->name.n, x);
    }
    return by_name;
}

/* False: the tree has something that is not to be in it. */
static bool compare_entry(const struct named *by_name, const json_t *entry)
{
    struct slice name = jread_text(entry, "path");
    const json_t *mtime = json_object_get(entry, "mtime");
    struct named *x = NULL;
    struct digest digest;
    uint64_t size;

    if (name.n != 0) {
        HASH_FIND(hh, by_name, name.p, name.n, x);
    }
    if (x == NULL || !digest_parse(jread_text(entry, "sha256"), &digest) ||
        !jread_u64(entry, "size", &size)) {
        return false;
    }
    /* A time that was kept is a part of the root, and what we send has none. */
    x->file->there = (mtime == NULL || json_is_null(mtime)) && size == x->file->size_bytes &&
                     digest_eq(&digest, &x->file->digest);
    return true;
}

static bool compare_all(struct publisher *p, const json_t *entries)
{
    struct named *all = mem_array(p->files.n + 1, sizeof all[0]);
    struct named *by_name = index_files(&p->files, all);
    bool ok = json_array_size(entries) > 0;

    for (size_t i = 0; ok && i < json_array_size(entries); i++) {
        ok = compare_entry(by_name, json_array_get(entries, i));
    }
    HASH_CLEAR(hh, by_name);
    free(all);
    return ok;
}

static void head_forget(struct publisher *p)
{
    for (size_t i = 0; i < p->files.n; i++) {
        p->files.at[i].there = false;
    }
    p->over_head = false;
    p->next = 0;
}

static void head_read(struct publisher *p, struct slice listing, struct publish_result *out)
{
    json_t *doc = json_loadb(listing.p != NULL ? listing.p : "", listing.n, 0, NULL);
    struct slice version = jread_text(doc, "version");
    size_t left = 0;

    p->over_head = version.n != 0 && version.n < sizeof out->version &&
                   digest_parse(jread_text(doc, "root"), &p->head) &&
                   compare_all(p, json_object_get(doc, "entries"));
    if (!p->over_head) {
        head_forget(p);
    } else {
        for (size_t i = 0; i < p->files.n; i++) {
            left += !p->files.at[i].there;
        }
        p->same = left == 0;
        if (p->same) {
            out->root = p->head;
            memcpy(out->version, version.p, version.n);
            out->version[version.n] = '\0';
        }
    }
    json_decref(doc);
}

static bool may_pass(int rc)
{
    return rc == E_NETWORK || rc == E_TIMEOUT || rc == E_AGAIN;
}

/* Another try at the same mirror, or at another one, may succeed. */
static bool has_failed(int rc)
{
    return may_pass(rc) || rc == E_PROTOCOL; /* a response that broke off in its head */
}

static bool may_try_again(const struct publisher *p, int rc)
{
    return may_pass(rc) && !(p->impatient && rc == E_TIMEOUT);
}

/* --- the files, several at a time: each goes on where the mirror says when its connection broke
 * --- */

struct upload_slot { /* one file on its way */
    struct publisher *p;
    const struct publish_file *file;
    struct ask *ask; /* how much of it has arrived? */
    struct xfer *x;
    int fd;
    uint64_t from; /* what the mirror has already */
    uint64_t sent;
    int status;
    struct ask_reason reason;
    unsigned tries;
    uint64_t not_before_ms;
    bool asked; /* where to go on */
};

static void upload_slot_done(struct upload_slot *l)
{
    if (l->fd != -1) {
        close(l->fd);
    }
    l->fd = -1;
    l->file = NULL;
    l->p->running--;
}

static void upload_slot_sent(struct upload_slot *l)
{
    l->p->done_bytes += l->file->size_bytes;
    upload_slot_done(l);
}

static void upload_slot_failed(struct upload_slot *l, int rc, const struct err *why)
{
    struct err e = *why;

    l->asked = false; /* ask where to go on */
    if (may_try_again(l->p, rc) && ++l->tries <= l->p->tries) {
        l->not_before_ms = clock_now_ms() + ((uint64_t)100 << l->tries);
        return;
    }
    err_prefix(&e, SLICE_FMT, SLICE_ARG(l->file->name));
    publisher_fail(l->p, rc, &e);
}

static struct slice file_url(struct upload_slot *l)
{
    struct buf url = BUF_INIT(64 << 10);
    struct slice out;

    buf_adds(&url, l->p->location);
    buf_byte(&url, '/');
    url_encode_path(l->file->name, &url);
    out = arena_copy(&l->p->arena, buf_slice(&url));
    buf_free(&url);
    return out;
}

static ptrdiff_t read_published_file(void *arg, uint64_t offset, void *p, size_t n)
{
    struct upload_slot *l = arg;
    ssize_t got;

    do {
        got = pread(l->fd, p, n, (off_t)(l->from + offset));
    } while (got == -1 && errno == EINTR);
    l->sent = offset + (got > 0 ? (uint64_t)got : 0);
    return got > 0 ? got : E_CHANGED; /* shorter than it was */
}

static int on_put_head(void *arg, const struct xfer_head *h)
{
    struct upload_slot *l = arg;

    l->status = h->status;
    ask_reason_head(&l->reason, h);
    return 0;
}

static int on_put_body(void *arg, struct slice bytes)
{
    struct upload_slot *l = arg;

    ask_reason_body(&l->reason, bytes);
    return 0;
}

static void on_put_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct upload_slot *l = arg;
    struct err e = *why;

    (void)body_bytes;
    l->x = NULL;
    if (rc == 0 && l->status == 422) {
        rc = err_set(&e, E_CHANGED, "the file changed while it was uploaded; publish again");
    } else if (rc == 0 && (l->status == 308 || l->status == 409)) {
        rc = err_set(&e, E_NETWORK, "the mirror's upload offset differs from the expected one");
    } else if (rc == 0) {
        rc = ask_judge(l->status, &l->reason, &e);
    }
    if (rc != 0) {
        upload_slot_failed(l, rc, &e);
        return;
    }
    upload_slot_sent(l);
}

static void put_upload_file(struct upload_slot *l)
{
    static const struct xfer_events events = {on_put_head, on_put_body, on_put_done};
    const struct publish_file *f = l->file;
    struct slice fields[2];
    struct slice lines[4];
    struct xfer_params w;
    size_t n = 0;
    char repr[64];

    digest_repr(&f->digest, repr);
    fields[n++] = arena_fmt(&l->p->arena, "Repr-Digest: %s", repr);
    if (l->from > 0) {
        fields[n++] =
            arena_fmt(&l->p->arena, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                      l->from, f->size_bytes - 1, f->size_bytes);
    }
    w = ask_xfer_params(l->p->agent, XFER_PUT, file_url(l), lines, fields, n);
    w.body_read = read_published_file;
    w.body_bytes = f->size_bytes - l->from;
    l->sent = 0;
    l->x = xfer_start(l->p->xfers, &w, &events, l);
}

/* After a break: the mirror lets go of what it still takes in of this file, and says how much it
 * has. */
static void on_offset(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct upload_slot *l = arg;
    uint64_t size = l->file->size_bytes;
    struct err e = *why;

    l->ask = NULL;
    if (rc == 0 && a->status == 409) {
        rc = err_set(&e, E_AGAIN,
                     "the mirror is still processing an earlier connection of this upload");
    } else if (rc == 0 && a->status != 404) {
        rc = ask_judge(a->status, &a->reason, &e);
    }
    if (rc != 0) {
        upload_slot_failed(l, rc, &e);
        return;
    }
    l->asked = true;
    l->tries = a->status != 404 && a->upload_offset > l->from ? 0 : l->tries; /* it moves on */
    l->from = a->status == 404 ? 0 : a->upload_offset;
    if (a->upload_complete && l->from == size) {
        upload_slot_sent(l); /* it was checked against this digest when its last byte came */
        return;
    }
    if (l->from > size || a->upload_complete) {
        l->from = 0; /* something else: sending it again settles what that is */
    } else if (l->from == size && size > 0) {
        l->from--; /* no range is empty: the last byte once more makes it whole */
    }
    put_upload_file(l);
}

static void upload_slot_go(struct upload_slot *l)
{
    if (l->x != NULL || l->ask != NULL || clock_now_ms() < l->not_before_ms) {
        return;
    }
    if ((l->tries > 0 || l->p->resumed) && !l->asked) {
        const struct ask_params w = {.method = XFER_HEAD, .url = file_url(l), .fixed = true};
        l->ask = ask_start(l->p->xfers, l->p->agent, &w, on_offset, l);
        return;
    }
    put_upload_file(l);
}

static int take_next(struct upload_slot *l, struct err *e)
{
    const struct publish_file *f = &l->p->files.at[l->p->next++];

    l->file = f;
    l->tries = 0;
    l->from = l->sent = 0;
    l->not_before_ms = 0;
    l->asked = false;
    l->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    l->p->running++;
    return l->fd == -1 ? err_sys(e, "%s", f->path) : 0;
}

static void pass_over(struct publisher *p)
{
    while (p->next < p->files.n && p->files.at[p->next].there) {
        p->done_bytes += p->files.at[p->next++].size_bytes;
    }
}

static void feed_upload_slots(struct publisher *p)
{
    struct err why;

    pass_over(p);
    for (unsigned i = 0; i < p->agent->connections && p->rc == 0; i++) {
        struct upload_slot *l = &p->upload_slots[i];
        if (l->file == NULL && p->next < p->files.n && take_next(l, &why) != 0) {
            publisher_fail(p, why.code, &why);
        } else if (l->file != NULL) {
            upload_slot_go(l);
        }
        pass_over(p);
    }
}

static int send_files(struct publisher *p)
{
    p->upload_slots = mem_array(p->agent->connections, sizeof p->upload_slots[0]);
    for (unsigned i = 0; i < p->agent->connections; i++) {
        p->upload_slots[i] = (struct upload_slot){.p = p, .fd = -1};
    }
    do {
        feed_upload_slots(p);
        if (p->rc == 0 && p->running > 0) {
            event_base_loop(p->base, EVLOOP_ONCE);
        }
    } while (p->rc == 0 && (p->running > 0 || p->next < p->files.n));
    for (unsigned i = 0; i < p->agent->connections; i++) {
        struct upload_slot *l = &p->upload_slots[i];
        xfer_cancel(&l->x);
        ask_cancel(&l->ask);
        if (l->file != NULL) {
            upload_slot_done(l);
        }
    }
    free(p->upload_slots);
    p->upload_slots = NULL;
    return p->rc;
}

static uint64_t send_done_bytes(const struct publisher *p)
{
    uint64_t done = p->done_bytes;

    for (unsigned i = 0; p->upload_slots != NULL && i < p->agent->connections; i++) {
        const struct upload_slot *l = &p->upload_slots[i];
        done += l->file != NULL ? l->from + l->sent : 0;
    }
    return done;
}

/* --- from begin to commit --- */

static void on_publish_tick(evutil_socket_t fd, short what, void *arg)
{
    struct publisher *p = arg;

    (void)fd;
    (void)what;
    if (p->bar != NULL) {
        progress_draw(p->bar, send_done_bytes(p), p->files.bytes, clock_now_ms());
    }
}

static void on_publish_signal(evutil_socket_t fd, short what, void *arg)
{
    struct err why;

    (void)fd;
    (void)what;
    err_set(&why, E_CANCELLED, "stopped; nothing was published");
    publisher_fail(arg, E_CANCELLED, &why);
}

/* --- the questions before and after ----------------------------------------------------------- */

struct question {
    struct publisher *p;
    int rc;
    bool done;
    struct slice location;
    struct slice body;
    struct slice url;
    int status;
    struct ask_reason reason;
};

static void on_publisher_answer(void *arg, int rc, const struct err *why,
                                const struct ask_answer *a)
{
    struct question *q = arg;

    q->p->ask = NULL;
    q->done = true;
    q->rc = rc;
    q->p->why = *why;
    q->status = a->status;
    q->reason = a->reason;
    q->url = arena_copy(&q->p->arena, a->url);
    q->location = arena_copy(&q->p->arena, a->location);
    q->body = arena_copy(&q->p->arena, a->body);
}

static void wait_ms(struct publisher *p, uint64_t ms)
{
    uint64_t until = clock_now_ms() + ms;

    while (p->rc == 0 && clock_now_ms() < until) {
        event_base_loop(p->base, EVLOOP_ONCE); /* the tick ends it */
    }
}

/* Asks until there is an answer; a commit may be asked twice, the mirror remembers. */
static int put_question(struct publisher *p, enum xfer_method method, struct slice url,
                        struct slice field, struct question *q)
{
    const struct ask_params w = {.method = method,
                                 .url = url,
                                 .fields = &field,
                                 .nfields = field.n != 0,
                                 .body_max = ANSWER_MAX,
                                 .fixed = true};

    for (unsigned tries = 0;; tries++) {
        *q = (struct question){.p = p};
        p->ask = ask_start(p->xfers, p->agent, &w, on_publisher_answer, q);
        while (!q->done && p->rc == 0) {
            event_base_loop(p->base, EVLOOP_ONCE);
        }
        ask_cancel(&p->ask);
        if (p->rc != 0) {
            return p->rc;
        }
        if (q->rc == 0) {
            q->rc = ask_judge(q->status, &q->reason, &p->why);
        }
        if (!may_try_again(p, q->rc) || tries == p->tries) {
            return q->rc;
        }
        wait_ms(p, (uint64_t)100 << tries);
    }
}

/* Takes the upload's URL, wherever it is from: the token goes to our mirrors alone. */
static int take_location(struct publisher *p, struct slice base, struct slice location)
{
    struct buf url = BUF_INIT(64 << 10);
    int rc = url_resolve(base, location, &url, &p->why);

    if (rc == 0 && mirrors_find(p->agent->mirrors, buf_slice(&url)) == MIRROR_NONE) {
        rc = err_set(&p->why, E_DENIED, "the mirror redirects the upload to another host");
    }
    if (rc == 0) {
        while (url.n > 0 && url.p[url.n - 1] == '/') {
            url.n--;
        }
        p->location = arena_copy(&p->arena, buf_slice(&url));
    }
    buf_free(&url);
    return rc;
}

/* True when an upload of the same files, begun by a process that was killed, is still there. */
static bool find_upload(struct publisher *p)
{
    struct slice location = memo_location(p->memo);
    struct question q;
    json_t *doc = NULL;

    if (location.n == 0 || take_location(p, p->to, location) != 0) {
        return false;
    }
    if (put_question(p, XFER_GET, p->location, SLICE_NONE, &q) == 0) {
        doc = json_loadb(q.body.p, q.body.n, 0, NULL);
    }
    p->resumed = json_is_object(doc);
    if (p->resumed) { /* at the mirror that it was begun at */
        p->mirror = mirrors_find(p->agent->mirrors, p->location);
    }
    p->committed = json_is_true(json_object_get(doc, "committed"));
    json_decref(doc);
    return p->resumed;
}

static int open_upload(struct publisher *p)
{
    struct question q;
    int rc;

    p->memo = memo_open(p->agent->state_dir, p->name, &p->files);
    if (find_upload(p)) {
        return 0;
    }
    if (p->rc != 0) {
        return p->rc;
    }
    rc = put_question(p, XFER_POST, arena_fmt(&p->arena, SLICE_FMT "/-/uploads", SLICE_ARG(p->to)),
                      SLICE_NONE, &q);
    if (rc == 0 && q.location.n == 0) {
        rc = err_set(
            &p->why, E_PROTOCOL,
            "not a hosted repository: the mirror's response has no Location for the upload");
    }
    rc = rc != 0 ? rc : take_location(p, q.url, q.location);
    if (rc == 0) {
        memo_keep(p->memo, p->location);
    }
    return rc;
}

static int commit(struct publisher *p, const char *if_match, struct publish_result *out)
{
    struct question q;
    struct slice match = SLICE_NONE;
    char head[DIGEST_HEX + 1];
    json_t *doc;
    int rc;

    if (p->over_head) {
        digest_format(&p->head, head);
        if_match = if_match != NULL ? if_match : head;
    }
    if (if_match != NULL) {
        match = arena_fmt(&p->arena, "If-Match: \"%s\"", if_match);
    }
    rc = put_question(p, XFER_POST,
                      arena_fmt(&p->arena, SLICE_FMT "/commit%s", SLICE_ARG(p->location),
                                p->over_head ? "" : "?replace=1"),
                      match, &q);
    p->unsure = p->unsure || has_failed(rc);
    if (rc == 0 || rc == E_CHANGED || rc == E_NOTFOUND) {
        memo_forget(p->memo); /* it is settled, one way or the other */
    }
    if (rc == E_CHANGED && q.status == 412) {
        return err_set(
            &p->why, rc,
            "the root of the repository changed; check what is published there, then publish "
            "again");
    }
    if (rc == E_CHANGED) {
        doc = json_loadb(q.body.p, q.body.n, 0, NULL);
        err_set(&p->why, rc, "the mirror rejected the commit: %.150s",
                json_is_string(json_object_get(doc, "error"))
                    ? json_string_value(json_object_get(doc, "error"))
                    : "409");
        json_decref(doc);
    }
    if (rc != 0) {
        return rc;
    }
    doc = json_loadb(q.body.p, q.body.n, 0, NULL);
    if (json_is_string(json_object_get(doc, "root")) &&
        !digest_parse(slice_str(json_string_value(json_object_get(doc, "root"))), &out->root)) {
        log_warn("publish.root", "the root in the mirror's response is invalid");
    }
    if (json_is_string(json_object_get(doc, "version"))) {
        snprintf(out->version, sizeof out->version, "%s",
                 json_string_value(json_object_get(doc, "version")));
    }
    json_decref(doc);
    return 0;
}

/* Is the tree what that earlier process made of it? When in doubt it is not, and sent again. */
static bool is_head(struct publisher *p, const struct digest *root)
{
    struct question q;
    struct digest head;
    json_t *doc = NULL;
    bool same = false;

    if (put_question(p, XFER_GET, arena_fmt(&p->arena, SLICE_FMT "/", SLICE_ARG(p->to)),
                     SLICE("Accept: application/json"), &q) == 0) {
        doc = json_loadb(q.body.p, q.body.n, 0, NULL);
        same = json_is_string(json_object_get(doc, "root")) &&
               digest_parse(slice_str(json_string_value(json_object_get(doc, "root"))), &head) &&
               digest_eq(&head, root);
    }
    json_decref(doc);
    return same;
}

/* What of the files is there? Nothing, when in doubt; but nobody there is no doubt. */
static int look_at_head(struct publisher *p, const char *if_match, struct publish_result *out)
{
    struct slice url = arena_fmt(&p->arena, SLICE_FMT "/?recursive=1", SLICE_ARG(p->to));
    struct question q;
    char head[DIGEST_HEX + 1];
    int rc = put_question(p, XFER_GET, url, SLICE("Accept: application/json"), &q);

    if (may_pass(rc) || p->rc != 0) {
        return rc;
    }
    if (rc == 0 && slice_eq(q.url, url)) { /* a tree that has moved is not published to */
        head_read(p, q.body, out);
    }
    digest_format(&p->head, head);
    if (p->same && p->unsure) {
        return 0; /* by the commit whose response did not come */
    }
    if (p->over_head && if_match != NULL && strcmp(head, if_match) != 0) {
        head_forget(p); /* the commit will say so */
        p->same = false;
        *out = (struct publish_result){0};
    }
    return 0;
}

/* --- all of it -------------------------------------------------------------------------------- */

static struct slice plain_to(struct slice to)
{
    while (to.n > 0 && to.p[to.n - 1] == '/') {
        to.n--;
    }
    return to;
}

bool publish_to_ok(struct slice to)
{
    size_t segments = 1;
    struct slice kind;

    to = plain_to(to);
    kind = to;
    slice_cut(&kind, '/');
    if (slice_starts(kind, SLICE("datasets/")) || slice_starts(kind, SLICE("spaces/"))) {
        segments--;
    }
    for (size_t i = 0; i < to.n; i++) {
        segments += to.p[i] == '/';
    }
    return segments == 3 && local_cache_name_ok(to);
}

static void open_publisher(struct publisher *p, const struct agent *a,
                           const struct publish_params *w, const struct publish_files *files)
{
    const struct timeval tick = {0, TICK_MS * 1000};
    struct slice to = plain_to(slice_str(w->to));

    *p = (struct publisher){.agent = a, .files = *files};
    p->name = arena_fmt(&p->arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(a->mirror), SLICE_ARG(to));
    p->base = event_base_new();
    CHECK(p->base != NULL);
    p->xfers =
        xfer_loop_open(p->base, &(struct xfer_limits){.user_agent = "trainagent/" MIRROR_VERSION});
    p->tick = event_new(p->base, -1, EV_PERSIST, on_publish_tick, p);
    p->stop[0] = evsignal_new(p->base, SIGINT, on_publish_signal, p);
    p->stop[1] = evsignal_new(p->base, SIGTERM, on_publish_signal, p);
    event_add(p->tick, &tick);
    event_add(p->stop[0], NULL);
    event_add(p->stop[1], NULL);
    p->bar = a->quiet || a->json ? NULL : progress_open(w->to);
}

static void close_publisher(struct publisher *p)
{
    xfer_loop_close(&p->xfers);
    event_free(p->tick);
    event_free(p->stop[0]);
    event_free(p->stop[1]);
    event_base_free(p->base);
    progress_close(&p->bar);
    memo_close(&p->memo);
    publish_files_fini(&p->files);
    arena_fini(&p->arena);
}

/* An earlier process may have been killed when all was done. */
static void forget_memo(struct publisher *p)
{
    p->memo = memo_open(p->agent->state_dir, p->name, &p->files);
    memo_forget(p->memo);
}

static int send_and_commit(struct publisher *p, const char *if_match, struct publish_result *out)
{
    int rc = open_upload(p);

    if (rc == 0 && p->committed) {
        rc = commit(p, if_match, out); /* what it would have heard */
        if (rc != 0 || is_head(p, &out->root)) {
            return rc;
        }
        /* Others have published since, or it was rolled back: what is asked for now is yet to be
         * done. */
        p->committed = p->resumed = false;
        *out = (struct publish_result){0};
        memo_close(&p->memo);
        rc = open_upload(p);
    }
    rc = rc != 0 ? rc : send_files(p);
    return rc != 0 ? rc : commit(p, if_match, out);
}

static int publish_all(struct publisher *p, const char *if_match, struct publish_result *out)
{
    int rc = look_at_head(p, if_match, out);

    if (rc == 0 && p->same) {
        forget_memo(p);
        return 0;
    }
    rc = rc != 0 ? rc : send_and_commit(p, if_match, out);
    if (rc == E_CHANGED && p->over_head && if_match == NULL && p->rc == 0) {
        /* The tree moved on while we sent: all of it, then, over whatever is there. */
        head_forget(p);
        p->done_bytes = 0;
        p->resumed = p->committed = false;
        memo_close(&p->memo);
        rc = send_and_commit(p, if_match, out);
    }
    return rc;
}

/* Forgets what an attempt at another mirror has left, except the digests of the files. */
static void begin_at(struct publisher *p, unsigned mirror)
{
    p->mirror = mirror;
    p->to = mirrors_at(p->agent->mirrors, mirror, p->name, &p->arena);
    p->location = SLICE_NONE;
    p->rc = 0;
    p->why = (struct err){0};
    p->done_bytes = 0;
    p->same = p->resumed = p->committed = false;
    head_forget(p);
    memo_close(&p->memo);
}

/* Will it perhaps do at another mirror? The token may not be known here yet, and this disk be
 * full. */
static bool is_mirrors_own(int rc)
{
    return has_failed(rc) || rc == E_DENIED || rc == E_NOSPACE;
}

/* Each mirror once, with few tries; then each with all of them. */
static int publish_somewhere(struct publisher *p, const char *if_match, struct publish_result *out)
{
    struct mirrors *m = p->agent->mirrors;
    bool several = mirrors_count(m) > 1;
    struct digest key;
    int rc = 0;

    mirrors_key(m, p->name, &key);
    for (unsigned round = several ? 0 : 1; round < 2; round++) {
        uint64_t tried = 0;
        unsigned next;

        p->impatient = round == 0;
        p->tries = round == 0 ? (unsigned)min_u64(FEW_TRIES, p->agent->tries) : p->agent->tries;
        while ((next = mirrors_choose(m, &key, tried, MIRRORS_ALL, clock_now_ms())) !=
               MIRROR_NONE) {
            tried |= (uint64_t)1 << next;
            *out = (struct publish_result){0};
            begin_at(p, next);
            rc = publish_all(p, if_match, out);
            if (!is_mirrors_own(rc)) {
                mirrors_worked(m, p->mirror);
                return rc;
            }
            if (has_failed(rc)) {
                mirrors_failed(m, p->mirror, clock_now_ms());
            }
            if (several) {
                log_info("publish.elsewhere", "mirror=" SLICE_FMT " why=\"%s\"",
                         SLICE_ARG(mirrors_url(m, p->mirror)), p->why.text);
            }
        }
        if (!has_failed(rc)) {
            break;
        }
    }
    return rc;
}

int publish(const struct agent *a, const struct publish_params *w, struct publish_result *out,
            struct err *e)
{
    struct publish_files files;
    struct publisher p;
    int rc;

    *out = (struct publish_result){0};
    if (!publish_to_ok(slice_str(w->to))) {
        return err_set(e, E_USAGE,
                       "%s: the destination must be <repo>/<owner>/<name>, such as models/me/gpt2",
                       w->to);
    }
    /* Before signals are ours: reading it all may take a while, and there is nothing to tidy up. */
    rc = publish_files_list(w->dir, w->after, &files, e);
    if (rc != 0) {
        return err_prefix(e, "%s", w->to);
    }
    if (files.n == 0) {
        publish_files_fini(&files);
        return 0;
    }
    open_publisher(&p, a, w, &files);
    rc = publish_somewhere(&p, w->if_match, out);
    out->files = p.files.n;
    out->step = p.files.step;
    out->bytes = p.files.bytes;
    if (rc != 0) {
        *e = p.why;
        e->code = rc;
        err_prefix(e, "%s", w->to);
    }
    close_publisher(&p);
    return rc;
}
