#include "server/upload/append.h"

#include <errno.h>
#include <stdatomic.h>

#include "common/base/log.h"
#include "server/store/alias.h"
#include "server/upload/arrival.h"
#include "server/upload/upload_grant.h"
#include "tests/harness/store.h"

enum { NOW = 1800000000, SIZE = 300000 };

struct world {
    struct uploads *u;
    struct upload_reply reply;
    char id[UPLOAD_ID + 1];
    struct slice bytes;
    struct digest digest;
};

static struct fixture *fix;
static struct world w;
static int yields;

static void on_yield(void *arg)
{
    (*(int *)arg)++;
}

static struct put put_of(enum put_kind kind)
{
    return (struct put){.kind = kind,
                        .repo = SLICE("models"),
                        .name = SLICE("oci:me/img"),
                        .branch = SLICE(""),
                        .path = SLICE(""),
                        .location = SLICE("/v2/models/me/img/blobs/uploads"),
                        .upload_id = slice_str(w.id),
                        .first = UINT64_MAX,
                        .total = UINT64_MAX};
}

/* The put that ends it, with what w.bytes are called. */
static struct put last(void)
{
    struct put p = put_of(PUT_APPEND);

    p.called = (struct called){.by = CALLED_SHA256, .sha256 = w.digest};
    return p;
}

static void fresh_reply(void)
{
    struct buf body = w.reply.body;

    buf_clear(&body);
    w.reply = (struct upload_reply){.body = body};
}

static int run(struct put p)
{
    int rc;

    fresh_reply();
    rc = upload_run(w.u, &p, NOW, &w.reply, NULL);
    return rc != 0 ? rc : w.reply.status;
}

static void begin(void)
{
    assert_int_equal(run(put_of(PUT_APPEND_OPEN)), 202);
    memcpy(w.id, w.reply.upload, sizeof w.id);
    assert_true(slice_ends(slice_str(w.reply.location), slice_str(w.id)));
}

static int open_sink(struct put p, uint64_t length, struct upload_sink **out)
{
    struct upload_body body = {.length = length, .yield = on_yield, .yield_arg = &yields};
    int rc;

    fresh_reply();
    rc = upload_sink_open(w.u, &p, &body, out, &w.reply, NULL);
    return rc != 0 ? rc : w.reply.status;
}

static void feed(struct upload_sink *k, struct slice bytes)
{
    while (bytes.n != 0) {
        size_t n = bytes.n < 10007 ? bytes.n : 10007;
        assert_int_equal(upload_sink_write(k, slice_first(bytes, n), &w.reply, NULL), 0);
        assert_int_equal(w.reply.status, 0);
        bytes = slice_from(bytes, n);
    }
}

/* known: the body's length is told. */
static int send_some(struct put p, struct slice bytes, bool known)
{
    struct upload_sink *k;
    int status = open_sink(p, known ? bytes.n : UINT64_MAX, &k);
    int rc;

    if (status != 0) {
        return status;
    }
    feed(k, bytes);
    rc = upload_sink_finish(&k, NOW, &w.reply, NULL);
    return rc != 0 ? rc : w.reply.status;
}

static int setup(void **state)
{
    fixture_setup(state);
    fix = *state;
    w = (struct world){.reply.body = BUF_INIT(1 << 20), .bytes = sample_bytes(7, SIZE)};
    digest_of(w.bytes, &w.digest);
    w.u = uploads_open(fix->s);
    begin();
    return 0;
}

static int teardown(void **state)
{
    upload_reply_free(&w.reply);
    free((char *)(uintptr_t)w.bytes.p);
    uploads_close(&w.u);
    return fixture_teardown(state);
}

static void restart(void)
{
    uploads_close(&w.u);
    fixture_reopen(fix);
    w.u = uploads_open(fix->s);
}

static void assert_here(const struct digest *d, size_t n)
{
    struct put p = put_of(PUT_UPLOAD_GRANT);
    struct buf key = BUF_INIT(4096), id = BUF_INIT(4096);
    bool has = false;

    assert_int_equal(upload_grant_tree_has(fix->s, &p, d, &has, NULL, NULL), 0);
    assert_true(has);
    assert_blob(fix->s, d, n);
    staged_object_key(&key, p.repo, p.name, d);
    assert_int_equal(store_get(fix->s, TABLE_UPLOAD, buf_slice(&key), &id, NULL), 0);
    assert_int_equal(id.n, UPLOAD_ID);
    buf_free(&key);
    buf_free(&id);
}

static void assert_nothing(const struct digest *d)
{
    struct put p = put_of(PUT_UPLOAD_GRANT);
    bool has = true;

    assert_int_equal(upload_grant_tree_has(fix->s, &p, d, &has, NULL, NULL), 0);
    assert_false(has);
}

static void at_once(void **state)
{
    static const size_t sizes[] = {0, 1, 32 << 10, (32 << 10) + 1, SIZE};

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        struct slice bytes = slice_first(w.bytes, sizes[i / 2]);
        struct put p = last();
        p.upload_id = SLICE("");
        digest_of(bytes, &p.called.sha256);
        assert_int_equal(send_some(p, bytes, i % 2), 201);
        assert_here(&p.called.sha256, bytes.n);
        p.called.sha256.b[0] ^= 1;
        assert_int_equal(send_some(p, bytes, i % 2), 422);
        assert_nothing(&p.called.sha256);
    }
}

/* The bytes in pieces; the last with the digest, or the digest alone behind them. */
static void in_pieces(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 40000, SIZE / 2, SIZE - 1, SIZE};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct put p = put_of(PUT_APPEND);
        assert_int_equal(send_some(p, slice_first(w.bytes, sizes[i]), true), 202);
        assert_int_equal(w.reply.offset, sizes[i]);
        assert_int_equal(run(put_of(PUT_APPEND_STATUS)), 204);
        assert_int_equal(w.reply.offset, sizes[i]);
        p = last();
        p.first = sizes[i];
        assert_int_equal(send_some(p, slice_from(w.bytes, sizes[i]), i % 2), 201);
        assert_here(&w.digest, SIZE);
        assert_int_equal(send_some(last(), SLICE(""), true), 201); /* asked twice */
        p.called.sha256.b[3] ^= 1;
        assert_int_equal(send_some(p, SLICE(""), true), 404);
        assert_int_equal(run(put_of(PUT_APPEND_STATUS)), 404);
        begin();
    }
}

static void over_restarts(void **state)
{
    (void)state;
    for (size_t at = 0; at < SIZE; at += SIZE / 4) {
        struct put p = put_of(PUT_APPEND);
        p.first = at;
        assert_int_equal(send_some(p, slice_first(slice_from(w.bytes, at), SIZE / 4), true), 202);
        if (at != SIZE / 4) { /* the digest's memory: there, gone, and behind */
            restart();
        }
    }
    assert_int_equal(send_some(last(), SLICE(""), true), 201);
    restart();
    assert_here(&w.digest, SIZE);
    assert_int_equal(send_some(last(), SLICE(""), true), 201);
}

static void out_of_order(void **state)
{
    static const uint64_t wrong[] = {0, 99, 101, UINT64_MAX - 1};
    struct put p = put_of(PUT_APPEND);

    (void)state;
    assert_int_equal(send_some(p, slice_first(w.bytes, 100), true), 202);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        p.first = wrong[i];
        assert_int_equal(send_some(p, SLICE("x"), true), 416);
        assert_true(w.reply.offset_known);
        assert_int_equal(w.reply.offset, 100);
    }
    assert_int_equal(send_some(last(), slice_from(w.bytes, 100), true), 201);
}

/* What came of a body that breaks off is kept, to the last byte. */
static void broken_off(void **state)
{
    struct upload_sink *k;

    (void)state;
    assert_int_equal(open_sink(put_of(PUT_APPEND), SIZE, &k), 0);
    feed(k, slice_first(w.bytes, 12345));
    upload_sink_close(&k);
    assert_int_equal(run(put_of(PUT_APPEND_STATUS)), 204);
    assert_int_equal(w.reply.offset, 12345);
    assert_int_equal(send_some(last(), slice_from(w.bytes, 12345), false), 201);
    assert_here(&w.digest, SIZE);
}

/* The disk has lost what came, while the digest of it is remembered: all of it comes again, and
 * counts anew. */
static void a_lost_stage(void **state)
{
    struct slice other = sample_bytes(8, SIZE / 2);
    struct put p = put_of(PUT_APPEND);
    char line[256];

    (void)state;
    snprintf(line, sizeof line, "rm -f %s/partial/*", fix->dir);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(send_some(put_of(PUT_APPEND), slice_first(w.bytes, SIZE / 2), true), 202);
        assert_int_equal(system(line), 0); /* NOLINT: a folder of our own */
        p.first = SIZE / 2;
        assert_int_equal(send_some(p, slice_from(w.bytes, SIZE / 2), true), 416);
        assert_int_equal(w.reply.offset, 0);
        p.first = 0;
        assert_int_equal(send_some(p, i == 0 ? other : slice_first(w.bytes, SIZE / 2), true), 202);
        assert_int_equal(send_some(last(), slice_from(w.bytes, SIZE / 2), true),
                         i == 0 ? 422 : 201);
        if (i == 0) {
            assert_nothing(&w.digest);
            begin();
        }
    }
    assert_here(&w.digest, SIZE);
    free((char *)(uintptr_t)other.p);
}

/* --- what is left of a body that breaks off --- */

static atomic_bool disk_fails;
static char said[256];

int fdatasync(int fd)
{
    errno = EIO;
    return atomic_load(&disk_fails) ? -1 : fsync(fd);
}

static void note(enum log_level level, const char *line)
{
    (void)level;
    snprintf(said, sizeof said, "%s", line);
}

struct coming {
    struct session session;
    struct charge charge;
    struct arrival file;
};

/* 1000 bytes are saved, 500 more have come. */
static void come(struct coming *x)
{
    struct put p = put_of(PUT_APPEND);
    int rc;

    fresh_reply();
    assert_true(upload_grant_begin(fix->s, &p, &x->session, &w.reply, &rc, NULL));
    charge_begin(&x->charge, w.u, x->session.id, 0);
    x->file = (struct arrival){.session = &x->session,
                               .charge = &x->charge,
                               .path = UPLOAD_GRANT_FILE,
                               .total = UINT64_MAX};
    assert_int_equal(uploads_open_ingest(w.u, UINT64_MAX, true, &x->file.in, NULL), 0);
    assert_int_equal(arrival_begin(&x->file, NULL, NULL), 0);
    assert_int_equal(uploads_append(&x->charge, x->file.in, slice_first(w.bytes, 1000), NULL), 0);
    assert_int_equal(arrival_save(&x->file, COMMIT_LAZY, NULL), 0);
    assert_int_equal(
        uploads_append(&x->charge, x->file.in, slice_first(slice_from(w.bytes, 1000), 500), NULL),
        0);
    said[0] = '\0';
}

/* It is gone on with behind the saved bytes. */
static void leave(struct coming *x, const char *why)
{
    log_divert(note);
    assert_true(arrival_settle(&x->file));
    log_divert(NULL);
    assert_non_null(strstr(said, "bytes=1000 lost=500"));
    assert_non_null(strstr(said, why));
    ingest_park(&x->file.in);
    charge_settle(&x->charge);
    session_free(&x->session);
    assert_int_equal(run(put_of(PUT_APPEND_STATUS)), 204);
    assert_int_equal(w.reply.offset, 1000);
    assert_int_equal(send_some(last(), slice_from(w.bytes, 1000), true), 201);
    assert_here(&w.digest, SIZE);
}

static void broken_off_when_whole(void **state)
{
    struct coming x = {0};
    struct digest d;

    (void)state;
    come(&x);
    assert_int_equal(ingest_finish(x.file.in, 1500, &d, NULL), 0);
    leave(&x, "why=\"the hash is already finalized, so its state cannot be saved\"");
}

static void broken_off_when_lost(void **state)
{
    struct coming x = {0};

    (void)state;
    come(&x);
    atomic_store(&disk_fails, true);
    assert_int_equal(arrival_save(&x.file, COMMIT_LAZY, NULL), E_IO);
    atomic_store(&disk_fails, false);
    assert_int_equal(ingest_state(x.file.in), INGEST_LOST);
    leave(&x, "why=\"the disk lost bytes of the file\"");
}

static void broken_off_when_the_upload_has_ended(void **state)
{
    struct coming x = {0};

    (void)state;
    come(&x);
    assert_int_equal(session_drop(w.u, w.id, NULL), 0);
    assert_false(arrival_settle(&x.file));
    assert_null(x.file.in);
    charge_settle(&x.charge);
    session_free(&x.session);
}

/* Who comes last has it: the one before is asked to yield, once. */
static void one_writer(void **state)
{
    struct upload_sink *k;
    struct upload_sink *other;

    (void)state;
    yields = 0;
    assert_int_equal(open_sink(put_of(PUT_APPEND), SIZE, &k), 0);
    feed(k, slice_first(w.bytes, 1000));
    assert_int_equal(open_sink(put_of(PUT_APPEND), SIZE, &other), E_BUSY);
    assert_int_equal(run(put_of(PUT_APPEND_STATUS)), E_BUSY);
    assert_int_equal(run(put_of(PUT_APPEND_DROP)), E_BUSY);
    assert_int_equal(yields, 1);
    upload_sink_close(&k);
    assert_int_equal(send_some(last(), slice_from(w.bytes, 1000), true), 201);
}

static void wrong_bytes_go(void **state)
{
    struct store_space space;
    struct put p = last();

    (void)state;
    p.called.sha256.b[5] ^= 1;
    assert_int_equal(send_some(put_of(PUT_APPEND), w.bytes, true), 202);
    assert_int_equal(send_some(p, SLICE(""), true), 422);
    assert_int_equal(send_some(last(), SLICE(""), true), 404);
    assert_nothing(&w.digest);
    store_space(fix->s, &space);
    assert_int_equal(space.staged_bytes + space.parked_bytes + space.used_bytes, 0);
}

static void dropped_and_expired(void **state)
{
    struct store_space space;
    uint64_t dropped;

    (void)state;
    assert_int_equal(send_some(put_of(PUT_APPEND), w.bytes, true), 202);
    assert_int_equal(run(put_of(PUT_APPEND_DROP)), 204);
    assert_int_equal(run(put_of(PUT_APPEND_STATUS)), 404);
    assert_int_equal(run(put_of(PUT_APPEND_DROP)), 404);
    begin();
    assert_int_equal(send_some(put_of(PUT_APPEND), w.bytes, true), 202);
    begin();
    assert_int_equal(send_some(last(), w.bytes, true), 201);
    assert_int_equal(upload_expire(w.u, NOW + UPLOAD_EXPIRE_S + 1, &dropped, NULL), 0);
    assert_int_equal(dropped, 2);
    assert_nothing(&w.digest);
    assert_int_equal(send_some(put_of(PUT_APPEND), w.bytes, true), 404);
    store_space(fix->s, &space);
    assert_int_equal(space.staged_bytes + space.parked_bytes, 0);
}

/* It ends while a body comes: nothing is kept, and nothing breaks. */
static void ended_meanwhile(void **state)
{
    struct upload_sink *k;
    uint64_t dropped;
    struct err e;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct batch *b = batch_new();
        assert_int_equal(open_sink(i == 0 ? put_of(PUT_APPEND) : last(), SIZE, &k), 0);
        feed(k, w.bytes);
        assert_int_equal(upload_expire(w.u, NOW + UPLOAD_EXPIRE_S + 1, &dropped, NULL), 0);
        assert_int_equal(dropped, 0); /* somebody is at it */
        batch_del(b, TABLE_UPLOAD, slice_of(w.id, UPLOAD_ID));
        assert_int_equal(store_commit(fix->s, &b, COMMIT_SYNC, &e), 0);
        assert_int_equal(upload_sink_finish(&k, NOW, &w.reply, NULL), 0);
        assert_int_equal(w.reply.status, 404);
        assert_nothing(&w.digest);
        begin();
    }
}

static void brought_before(void **state)
{
    struct put p = put_of(PUT_APPEND_OPEN);

    (void)state;
    p.called = (struct called){.by = CALLED_SHA256, .sha256 = w.digest};
    p.to = SLICE("oci:me/base");
    assert_int_equal(run(p), 202);
    assert_int_equal(send_some(last(), w.bytes, true), 201);
    assert_int_equal(run(p), 201);
    /* Another tree has it only once a version of this one holds it, not an upload to it. */
    p.name = SLICE("oci:me/other");
    p.to = SLICE("oci:me/img");
    assert_int_equal(run(p), 202);
    {
        struct batch *b = batch_new();
        struct buf key = BUF_INIT(4096);
        holder_key(&key, &w.digest, SLICE("models"), 't', SLICE("oci:me/img"));
        batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
        assert_int_equal(store_commit(fix->s, &b, COMMIT_SYNC, NULL), 0);
        buf_free(&key);
    }
    assert_int_equal(run(p), 201);
    p.to = SLICE_NONE;
    p.name = SLICE("oci:me/third");
    assert_int_equal(run(p), 202);
}

static bool is_known(const struct called *name, struct digest *out)
{
    bool known;

    assert_int_equal(alias_find(fix->s, name, out, &known, NULL), 0);
    return known;
}

/* Named by its SHA-512. */
static void by_another_name(void **state)
{
    struct put p = put_of(PUT_APPEND);
    struct gc_report report;
    struct called name;
    struct digest d;
    uint64_t dropped;

    (void)state;
    p.called.by = CALLED_SHA512;
    sha512_of(SLICE("other"), &p.called.sha512);
    assert_int_equal(send_some(p, w.bytes, true), 422);
    assert_false(is_known(&p.called, &d));
    begin();
    name.by = CALLED_SHA512;
    sha512_of(w.bytes, &name.sha512);
    p = put_of(PUT_APPEND);
    assert_int_equal(send_some(p, slice_first(w.bytes, 1000), true), 202);
    p.called = name;
    assert_int_equal(send_some(p, slice_from(w.bytes, 1000), true), 201);
    assert_int_equal(send_some(p, SLICE(""), true), 201);
    assert_here(&w.digest, SIZE);
    assert_true(is_known(&name, &d));
    assert_true(digest_eq(&d, &w.digest));
    p.kind = PUT_APPEND_OPEN;
    assert_int_equal(run(p), 201);
    assert_int_equal(gc_run(fix->s, 0, false, &report, NULL), 0);
    assert_true(is_known(&name, &d));
    assert_int_equal(upload_expire(w.u, NOW + UPLOAD_EXPIRE_S + 1, &dropped, NULL), 0);
    /* What is as old as the run itself stays; the blob was made by this machine's clock. */
    for (int i = 0; i < 100 && is_known(&name, &d); i++) {
        usleep(100000);
        assert_int_equal(gc_run(fix->s, 0, false, &report, NULL), 0);
    }
    assert_false(is_known(&name, &d));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Many trees bring the same bytes at a time: each has them, and no other. */
static void brought_to_many(void **state)
{
    enum { TREES = 100 };
    char name[TREES + 1][32];

    (void)state;
    for (unsigned i = 0; i <= TREES; i++) {
        snprintf(name[i], sizeof name[i], "oci:me/%u", i);
    }
    for (unsigned i = 0; i < TREES; i++) {
        struct put p = last();
        p.upload_id = SLICE("");
        p.name = slice_str(name[i]);
        assert_int_equal(send_some(p, w.bytes, true), 201);
    }
    for (unsigned i = 0; i <= TREES; i++) {
        struct put p = put_of(PUT_UPLOAD_GRANT);
        struct buf upload_grants = BUF_INIT(1 << 16);
        bool has;
        p.name = slice_str(name[i]);
        assert_int_equal(upload_grant_tree_has(fix->s, &p, &w.digest, &has, NULL, NULL), 0);
        assert_int_equal(has, i < TREES);
        assert_int_equal(upload_grant_tree_has(fix->s, &p, &w.digest, &has, &upload_grants, NULL),
                         0);
        assert_int_equal(has, i < TREES);
        assert_int_equal(upload_grants.n, i < TREES ? UPLOAD_ID : 0);
        buf_free(&upload_grants);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(at_once),
        T(in_pieces),
        T(over_restarts),
        T(out_of_order),
        T(broken_off),
        T(one_writer),
        T(wrong_bytes_go),
        T(dropped_and_expired),
        T(ended_meanwhile),
        T(brought_before),
        T(by_another_name),
        T(brought_to_many),
        T(a_lost_stage),
        T(broken_off_when_whole),
        T(broken_off_when_lost),
        T(broken_off_when_the_upload_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
