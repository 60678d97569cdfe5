#include "server/cluster/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/log.h"

enum {
    TRIES = 6, /* of a request whose outcome is unknown */
    TRY_PAUSE_MS = 50,
    DAMAGE_READS = 3,
    NAME_BYTES = 20 + 1 + 16, /* <digits>-<nonce> */
};

/* --- keys --- */

/* "<digits>-<nonce>" after one of the two prefixes. */
static bool name_read(const char *key, struct slice *name, uint64_t *seq)
{
    struct slice rest = slice_str(key), digits, nonce;
    uint8_t bytes[8];
    uint64_t left;

    if (slice_starts(rest, SLICE(CHECKPOINT_HEADS))) {
        rest = slice_from(rest, strlen(CHECKPOINT_HEADS));
    } else if (slice_starts(rest, SLICE(CHECKPOINT_PARTS))) {
        rest = slice_from(rest, strlen(CHECKPOINT_PARTS));
    } else {
        return false;
    }
    if (!slice_take(&rest, NAME_BYTES, name)) {
        return false;
    }
    digits = slice_first(*name, 20);
    nonce = slice_from(*name, 21);
    if (name->p[20] != '-' || !slice_u64(digits, &left) || !slice_hex(nonce, bytes, 8)) {
        return false;
    }
    *seq = UINT64_MAX - left;
    return rest.n == 0 || rest.p[0] == '/';
}

bool checkpoint_part_prefix(const char *key, char out[CHECKPOINT_PREFIX_ROOM])
{
    struct slice name;
    uint64_t seq;

    if (!name_read(key, &name, &seq)) {
        return false;
    }
    snprintf(out, CHECKPOINT_PREFIX_ROOM, CHECKPOINT_PARTS SLICE_FMT "/", SLICE_ARG(name));
    return true;
}

static void part_key(const char *head, size_t part, char out[CHECKPOINT_PREFIX_ROOM])
{
    size_t n;

    CHECK(checkpoint_part_prefix(head, out));
    n = strlen(out);
    snprintf(out + n, CHECKPOINT_PREFIX_ROOM - n, "%05zu", part);
}

/* --- requests that may be repeated --- */

static bool pause_and_repeat(int rc, unsigned tries)
{
    struct timespec t = {0, (long)(TRY_PAUSE_MS << tries) * 1000000};

    while (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    if (tries + 1 >= TRIES || rc == E_CANCELLED || rc == E_NOTFOUND || !bucket_is_undecided(rc)) {
        return false;
    }
    nanosleep(&t, NULL);
    return true;
}

static int put_object(struct bucket *b, const char *key, struct slice body, struct err *e)
{
    int rc;

    for (unsigned tries = 0;; tries++) {
        rc = bucket_put(b, key, body, e);
        if (rc == 0 || !pause_and_repeat(rc, tries)) {
            return rc;
        }
    }
}

static int get_object(struct bucket *b, const char *key, struct buf *out, struct err *e)
{
    int rc;

    for (unsigned tries = 0;; tries++) {
        rc = bucket_get(b, key, out, e);
        if (rc == E_TOOBIG) {
            return err_set(e, E_CORRUPT, "%s has more bytes than it may have", key);
        }
        if (rc == 0 || !pause_and_repeat(rc, tries)) {
            return rc;
        }
    }
}

/* --- writing --- */

struct checkpoint_writer {
    struct bucket *b;
    struct checkpoint_head head;
    char key[CHECKPOINT_KEY_ROOM];
    size_t part_bytes;
    size_t parts;
    struct buf part, encoded_parts, commits;
    struct checkpoint_rows rows;
};

struct checkpoint_writer *checkpoint_writer_open(struct bucket *b, uint64_t seq,
                                                 const struct digest *own, uint64_t nonce,
                                                 size_t part_bytes)
{
    struct checkpoint_writer *w = NEW(struct checkpoint_writer);

    w->b = b;
    w->head.seq = seq;
    w->head.own = *own;
    w->part_bytes = part_bytes != 0 ? part_bytes : CHECKPOINT_PART_BYTES_MAX;
    w->part = BUF_INIT(CHECKPOINT_PART_BYTES_MAX);
    w->encoded_parts = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    w->commits = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    w->rows = CHECKPOINT_ROWS_INIT;
    snprintf(w->key, sizeof w->key, CHECKPOINT_HEADS "%020" PRIu64 "-%016" PRIx64, UINT64_MAX - seq,
             nonce);
    return w;
}

void checkpoint_writer_close(struct checkpoint_writer **wp)
{
    struct checkpoint_writer *w = *wp;

    *wp = NULL;
    if (w == NULL) {
        return;
    }
    buf_free(&w->part);
    buf_free(&w->encoded_parts);
    buf_free(&w->commits);
    checkpoint_rows_free(&w->rows);
    free(w);
}

void checkpoint_writer_commit(struct checkpoint_writer *w, const struct log_entry_author *last)
{
    checkpoint_commit_write(last, &w->commits);
}

static int send_part(struct checkpoint_writer *w, struct err *e)
{
    struct checkpoint_part p = {.size_bytes = w->part.n};
    char key[CHECKPOINT_PREFIX_ROOM];
    int rc;

    if (w->part.n == 0) {
        return 0;
    }
    part_key(w->key, w->parts++, key);
    digest_of(buf_slice(&w->part), &p.digest);
    checkpoint_part_write(&p, &w->encoded_parts);
    rc = put_object(w->b, key, buf_slice(&w->part), e);
    buf_clear(&w->part);
    return rc;
}

int checkpoint_writer_row(struct checkpoint_writer *w, const struct checkpoint_row *r,
                          struct err *e)
{
    int rc = 0;

    if (w->part.n != 0 && w->part.n + checkpoint_row_bytes(r) > w->part_bytes) {
        rc = send_part(w, e);
    }
    return rc != 0 ? rc : checkpoint_row_write(&w->rows, r, &w->part, e);
}

int checkpoint_writer_finish(struct checkpoint_writer *w, char key[CHECKPOINT_KEY_ROOM],
                             struct err *e)
{
    struct buf out = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    int rc = send_part(w, e);

    w->head.rows = w->rows.count;
    w->head.commits = buf_slice(&w->commits);
    w->head.parts = buf_slice(&w->encoded_parts);
    rc = rc != 0 ? rc : checkpoint_head_write(&w->head, &out, e);
    rc = rc != 0 ? rc : put_object(w->b, w->key, buf_slice(&out), e);
    memcpy(key, w->key, sizeof w->key);
    buf_free(&out);
    return rc;
}

/* --- finding --- */

struct finding {
    int (*each)(void *arg, const struct checkpoint_found *c);
    void *arg;
};

static int on_found(void *arg, const struct bucket_key *k)
{
    struct finding *f = arg;
    struct checkpoint_found c = {.modified_unix_s = k->modified_unix_s};
    struct slice name;

    if (strlen(k->key) != strlen(CHECKPOINT_HEADS) + NAME_BYTES ||
        !name_read(k->key, &name, &c.seq)) {
        return 0;
    }
    snprintf(c.key, sizeof c.key, "%s", k->key);
    return f->each(f->arg, &c);
}

int checkpoint_list(struct bucket *b, size_t max,
                    int (*each)(void *arg, const struct checkpoint_found *c), void *arg,
                    struct err *e)
{
    struct finding f = {each, arg};

    return bucket_list(b, CHECKPOINT_HEADS, "", max, on_found, &f, e);
}

/* --- reading --- */

static int read_checkpoint_head(struct bucket *b, const struct checkpoint_found *c,
                                struct buf *bytes, struct checkpoint_head *out, struct err *e)
{
    int rc = 0;

    for (unsigned i = 0; i < DAMAGE_READS; i++) {
        rc = get_object(b, c->key, bytes, e);
        rc = rc != 0 ? rc : checkpoint_head_read(buf_slice(bytes), out, e);
        if (rc != E_CORRUPT) {
            break;
        }
    }
    if (rc == 0 && out->seq != c->seq) {
        rc = err_set(e, E_CORRUPT, "it is a checkpoint of entry %" PRIu64, out->seq);
    }
    return rc;
}

static int read_part(struct bucket *b, const char *key, const struct checkpoint_part *p,
                     struct buf *bytes, struct err *e)
{
    struct digest d;
    int rc;

    for (unsigned i = 0; i < DAMAGE_READS; i++) {
        rc = get_object(b, key, bytes, e);
        if (rc != 0 && rc != E_CORRUPT) {
            return rc == E_NOTFOUND ? err_set(e, E_CORRUPT, "part %s is missing", key) : rc;
        }
        digest_of(buf_slice(bytes), &d);
        if (rc == 0 && bytes->n == p->size_bytes && digest_eq(&d, &p->digest)) {
            return 0;
        }
    }
    return err_set(e, E_CORRUPT, "part %s is damaged", key);
}

static int ignore_row(void *arg, const struct checkpoint_row *r, struct err *e)
{
    (void)arg;
    (void)r;
    (void)e;
    return 0;
}

static int read_parts(struct bucket *b, const struct checkpoint_found *c,
                      const struct checkpoint_head *h, const struct checkpoint_events *ev,
                      void *arg, struct err *e)
{
    struct checkpoint_rows rows = CHECKPOINT_ROWS_INIT;
    struct buf bytes = BUF_INIT(CHECKPOINT_PART_BYTES_MAX);
    struct slice rest = h->parts;
    struct checkpoint_part p;
    char key[CHECKPOINT_PREFIX_ROOM];
    int rc = 0;

    for (size_t i = 0; rc == 0 && checkpoint_part_next(&rest, &p); i++) {
        part_key(c->key, i, key);
        rc = read_part(b, key, &p, &bytes, e);
        rc = rc != 0 ? rc
                     : checkpoint_rows_read(&rows, buf_slice(&bytes),
                                            ev->on_row != NULL ? ev->on_row : ignore_row, arg, e);
    }
    if (rc == 0 && rows.count != h->rows) {
        rc = err_set(e, E_CORRUPT, "it has %" PRIu64 " rows, but names %" PRIu64, rows.count,
                     h->rows);
    }
    checkpoint_rows_free(&rows);
    buf_free(&bytes);
    return rc;
}

int checkpoint_read(struct bucket *b, const struct checkpoint_found *c,
                    const struct checkpoint_events *ev, void *arg, struct err *e)
{
    struct buf bytes = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    struct checkpoint_head h;
    struct err why = {0};
    int rc = read_checkpoint_head(b, c, &bytes, &h, &why);

    rc = rc != 0 || ev->on_head == NULL ? rc : ev->on_head(arg, &h, &why);
    rc = rc != 0 ? rc : read_parts(b, c, &h, ev, arg, &why);
    if (rc == E_CORRUPT) {
        log_warn("cluster.checkpoint_damaged", "key=%s why=\"%s\"", c->key, why.text);
    }
    buf_free(&bytes);
    return rc != 0 ? err_set(e, rc, "checkpoint %s: %.200s", c->key, why.text) : 0;
}
