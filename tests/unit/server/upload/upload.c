#include "server/upload/upload.h"

#include <pthread.h>

#include "tests/harness/store.h"

enum { NOW = 1800000000 };

struct world {
    struct uploads *u;
    struct upload_reply reply;
    char id[UPLOAD_ID + 1];
};

static struct fixture *fix;
static struct world w;

static int setup(void **state)
{
    fixture_setup(state);
    fix = *state;
    w = (struct world){.reply.body = BUF_INIT(1 << 20)};
    w.u = uploads_open(fix->s);
    return 0;
}

static int teardown(void **state)
{
    upload_reply_free(&w.reply);
    uploads_close(&w.u);
    return fixture_teardown(state);
}

/* As after a SIGKILL, but for what only a power cut would take. */
static void restart(void)
{
    uploads_close(&w.u);
    fixture_reopen(fix);
    w.u = uploads_open(fix->s);
}

static struct put put_of(enum put_kind kind, const char *path)
{
    return (struct put){.kind = kind,
                        .repo = SLICE("models"),
                        .name = SLICE("me/gpt"),
                        .path = slice_str(path),
                        .upload_id = slice_str(w.id),
                        .total = UINT64_MAX,
                        .location = SLICE("/models/me/gpt/-/uploads")};
}

static void fresh_reply(void)
{
    struct buf body = w.reply.body;

    buf_clear(&body);
    w.reply = (struct upload_reply){.body = body};
}

static int run(const struct put *p)
{
    struct err e = {0};

    fresh_reply();
    if (upload_run(w.u, p, NOW, &w.reply, &e) != 0) {
        fail_msg("%s", e.text);
    }
    return w.reply.status;
}

static int simple(enum put_kind kind, const char *path)
{
    struct put p = put_of(kind, path);

    return run(&p);
}

static void open_session(void)
{
    w.id[0] = '\0';
    assert_int_equal(simple(PUT_UPLOAD_OPEN, ""), 201);
    assert_int_equal(strncmp(w.reply.location, "/models/me/gpt/-/uploads/", 25), 0);
    snprintf(w.id, sizeof w.id, "%s", w.reply.location + 25);
    assert_int_equal(strlen(w.id), UPLOAD_ID);
}

static void on_yield(void *arg)
{
    (*(int *)arg)++;
}

static int w_yields; /* of all sinks */

static struct upload_sink *begin(const struct put *p, uint64_t length)
{
    struct upload_body body = {.length = length, .yield = on_yield, .yield_arg = &w_yields};
    struct upload_sink *k = NULL;
    struct err e = {0};

    fresh_reply();
    if (upload_sink_open(w.u, p, &body, &k, &w.reply, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_true((k == NULL) == (w.reply.status != 0));
    return k;
}

/* In pieces of odd sizes. */
static void feed(struct upload_sink *k, struct slice bytes)
{
    struct err e = {0};

    while (bytes.n > 0) {
        size_t n = bytes.n < 30011 ? bytes.n : 30011;
        if (upload_sink_write(k, slice_first(bytes, n), &w.reply, &e) != 0) {
            fail_msg("%s", e.text);
        }
        bytes = slice_from(bytes, n);
    }
}

static int finish(struct upload_sink **kp)
{
    struct err e = {0};

    if (upload_sink_finish(kp, NOW, &w.reply, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_null(*kp);
    return w.reply.status;
}

static int send_put(const struct put *p, struct slice bytes, bool sized)
{
    struct upload_sink *k = begin(p, sized ? bytes.n : UINT64_MAX);

    if (k == NULL) {
        return w.reply.status;
    }
    feed(k, bytes);
    if (w.reply.status != 0) {
        upload_sink_close(&k);
        return w.reply.status;
    }
    return finish(&k);
}

static int send(enum put_kind kind, const char *path, struct slice bytes)
{
    struct put p = put_of(kind, path);

    return send_put(&p, bytes, true);
}

static bool head(struct snap *out)
{
    return head_get(fix->s, SLICE("models"), SLICE("me/gpt"), out, NULL) == 0;
}

/* The tree's file has these bytes; n 0 with p NULL: there is none. */
static void assert_file(const char *path, struct slice bytes)
{
    struct arena a = {0};
    struct digest d;
    struct entry en;
    struct snap sn;
    int rc;

    assert_true(head(&sn));
    rc = tree_get(fix->s, &sn.root, slice_str(path), &a, &en, NULL);
    if (bytes.p == NULL) {
        assert_int_equal(rc, E_NOTFOUND);
    } else {
        assert_int_equal(rc, 0);
        digest_of(bytes, &d);
        assert_true(digest_eq(&d, &en.digest));
        assert_int_equal(en.size_bytes, bytes.n);
        assert_blob(fix->s, &d, bytes.n);
    }
    arena_fini(&a);
}

static int each_kind(void *arg, struct slice repo, char kind, struct slice key)
{
    (void)repo;
    (void)key;
    *(char *)arg = kind;
    return 0;
}

/* The kind of the last holder, or '-'. */
static char held_by(struct slice bytes)
{
    struct digest d;
    char kind = '-';

    digest_of(bytes, &d);
    assert_int_equal(holder_each(fix->s, &d, each_kind, &kind, NULL), 0);
    return kind;
}

static void nothing_shows_before_the_commit(void **state)
{
    struct slice big = sample_bytes(1, 200000);
    struct snap sn;

    (void)state;
    open_session();
    assert_int_equal(send(PUT_UPLOAD_FILE, "model.safetensors", big), 201);
    assert_non_null(strstr(buf_cstr(&w.reply.body), "\"size\":200000,\"sha256\":\""));
    assert_true(w.reply.offset_known && w.reply.complete && w.reply.offset == big.n);
    assert_int_equal(send(PUT_UPLOAD_FILE, "a/config.json", SLICE("{}")), 201);
    assert_int_equal(send(PUT_UPLOAD_FILE, "empty", SLICE("")), 201);
    assert_false(head(&sn));
    assert_int_equal(held_by(big), 'u');
    assert_int_equal(simple(PUT_UPLOAD_STATUS, ""), 200);
    assert_non_null(strstr(buf_cstr(&w.reply.body), "\"files\":3,\"committed\":false"));

    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
    assert_true(w.reply.published);
    assert_non_null(strstr(buf_cstr(&w.reply.body), "\"version\":\"v1\",\"entries\":3}"));
    assert_int_equal(strlen(w.reply.etag), 66);
    assert_file("model.safetensors", big);
    assert_file("a/config.json", SLICE("{}"));
    assert_file("empty", SLICE(""));
    assert_int_equal(held_by(big), 't');

    /* asked twice, the same answer; the session takes no more */
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
    assert_false(w.reply.published);
    assert_non_null(strstr(buf_cstr(&w.reply.body), "\"version\":\"v1\""));
    assert_int_equal(send(PUT_UPLOAD_FILE, "late", SLICE("x")), 409);
    assert_int_equal(simple(PUT_UPLOAD_ABORT, ""), 409);
    restart();
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
    free((char *)(uintptr_t)big.p);
}

static void single_files(void **state)
{
    struct slice big = sample_bytes(2, 100000);
    struct put p = put_of(PUT_FILE, "x");
    struct snap before;
    struct snap after;

    (void)state;
    assert_int_equal(send(PUT_FILE, "x", SLICE("one")), 201);
    assert_int_equal(send_put(&p, big, false), 201); /* chunked: no length */
    assert_file("x", big);
    assert_true(head(&before));
    assert_int_equal(send(PUT_FILE, "x", big), 200); /* the same again: no new version */
    assert_false(w.reply.published);
    assert_true(head(&after));
    assert_int_equal(before.seq, after.seq);
    assert_int_equal(send(PUT_FILE, "x/y", SLICE("clash")), 409);
    assert_int_equal(send(PUT_FILE, "d/a", SLICE("1")), 201);
    assert_int_equal(send(PUT_FILE, "d/b", SLICE("2")), 201);
    assert_int_equal(simple(PUT_DELETE, "x"), 200);
    assert_file("x", SLICE_NONE);
    assert_int_equal(simple(PUT_DELETE, "x"), 404);
    assert_int_equal(simple(PUT_DELETE, "d/"), 200);
    assert_file("d/a", SLICE_NONE);
    assert_int_equal(simple(PUT_DELETE, ""), 404);
    free((char *)(uintptr_t)big.p);
}

static void conditions_of_single_files(void **state)
{
    struct put p = put_of(PUT_FILE, "x");
    struct snap sn;

    (void)state;
    p.match = MATCH_ANY;
    assert_int_equal(send_put(&p, SLICE("1"), true), 412);
    p = put_of(PUT_FILE, "x");
    p.if_none_match_any = true;
    assert_int_equal(send_put(&p, SLICE("1"), true), 201);
    assert_int_equal(send_put(&p, SLICE("2"), true), 412);
    p = put_of(PUT_FILE, "x");
    p.match = MATCH_FILE;
    digest_of(SLICE("2"), &p.if_match);
    assert_int_equal(send_put(&p, SLICE("3"), true), 412);
    digest_of(SLICE("1"), &p.if_match);
    assert_int_equal(send_put(&p, SLICE("3"), true), 201);
    p = put_of(PUT_DELETE, "x");
    p.match = MATCH_ROOT;
    assert_int_equal(run(&p), 412);
    assert_true(head(&sn));
    p.if_match = sn.root;
    assert_int_equal(run(&p), 200);
}

static void of_two_commits_one_loses(void **state)
{
    struct put p = put_of(PUT_UPLOAD_COMMIT, "");
    char first[UPLOAD_ID + 1];
    struct snap sn;

    (void)state;
    assert_int_equal(send(PUT_FILE, "base", SLICE("b")), 201);
    assert_true(head(&sn));
    open_session();
    memcpy(first, w.id, sizeof first);
    assert_int_equal(send(PUT_UPLOAD_FILE, "a", SLICE("1")), 201);
    open_session();
    assert_int_equal(send(PUT_UPLOAD_FILE, "b", SLICE("2")), 201);
    p.upload_id = slice_str(first);
    p.match = MATCH_ROOT;
    p.if_match = sn.root;
    assert_int_equal(run(&p), 201);
    p.upload_id = slice_str(w.id);
    assert_int_equal(run(&p), 412);
    assert_file("b", SLICE_NONE);
    assert_true(head(&sn)); /* with the new root it goes */
    p.if_match = sn.root;
    assert_int_equal(run(&p), 201);
    assert_file("a", SLICE("1"));
    assert_file("base", SLICE("b"));
}

struct racer {
    pthread_t thread;
    struct put put;
    struct upload_reply reply;
    int rc;
};

static void *race(void *arg)
{
    struct racer *r = arg;

    r->rc = upload_run(w.u, &r->put, NOW, &r->reply, NULL);
    return NULL;
}

/* At the same time: with If-Match on one root exactly one is published; without, all are. */
static void races(void **state)
{
    enum { N = 6 };
    struct racer r[N];
    char id[N][UPLOAD_ID + 1];
    struct snap sn;

    (void)state;
    assert_int_equal(send(PUT_FILE, "base", SLICE("b")), 201);
    for (int conditional = 0; conditional < 2; conditional++) {
        int won = 0;

        assert_true(head(&sn));
        for (int i = 0; i < N; i++) {
            char path[16];
            snprintf(path, sizeof path, "f%d-%d", conditional, i);
            open_session();
            memcpy(id[i], w.id, sizeof w.id);
            assert_int_equal(send(PUT_UPLOAD_FILE, path, SLICE("1")), 201);
            r[i] =
                (struct racer){.put = put_of(PUT_UPLOAD_COMMIT, ""), .reply.body = BUF_INIT(4096)};
            r[i].put.upload_id = slice_str(id[i]);
            r[i].put.match = conditional ? MATCH_ROOT : MATCH_NOTHING;
            r[i].put.if_match = sn.root;
        }
        for (int i = 0; i < N; i++) {
            assert_int_equal(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
        }
        for (int i = 0; i < N; i++) {
            pthread_join(r[i].thread, NULL);
            assert_int_equal(r[i].rc, 0);
            won += r[i].reply.status == 201;
            assert_true(r[i].reply.status == 201 || r[i].reply.status == 412);
            upload_reply_free(&r[i].reply);
        }
        assert_int_equal(won, conditional ? 1 : N);
    }
}

static void replace_and_clash(void **state)
{
    struct put p;

    (void)state;
    assert_int_equal(send(PUT_FILE, "old/x", SLICE("1")), 201);
    open_session();
    assert_int_equal(send(PUT_UPLOAD_FILE, "old", SLICE("file")), 201);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""),
                     409); /* over the head: a file where a folder is */
    p = put_of(PUT_UPLOAD_COMMIT, "");
    p.replace = true;
    assert_int_equal(run(&p), 201);
    assert_file("old", SLICE("file"));
    assert_file("old/x", SLICE_NONE);
}

static void resume_in_parts(void **state)
{
    struct slice all = sample_bytes(3, 300000);
    struct put p;
    struct upload_sink *k;

    (void)state;
    open_session();
    p = put_of(PUT_UPLOAD_FILE, "big");
    p.total = all.n;
    assert_int_equal(send_put(&p, slice_first(all, 100000), true), 308);
    assert_true(w.reply.offset_known && !w.reply.complete && w.reply.offset == 100000);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 409); /* not whole yet */

    p.first = 200000; /* a hole */
    assert_int_equal(send_put(&p, slice_from(all, 200000), true), 409);
    assert_int_equal(w.reply.offset, 100000);

    p.first = 100000; /* the client leaves in the middle */
    k = begin(&p, 200000);
    feed(k, slice_first(slice_from(all, 100000), 50000));
    upload_sink_close(&k);
    restart();
    assert_int_equal(simple(PUT_UPLOAD_STATUS, "big"), 200);
    assert_int_equal(w.reply.offset, 150000);
    assert_false(w.reply.complete);

    p.first = 140000; /* overlapping is fine */
    p.digest_known = true;
    digest_of(all, &p.digest);
    assert_int_equal(send_put(&p, slice_from(all, 140000), true), 201);
    assert_int_equal(simple(PUT_UPLOAD_STATUS, "big"), 200);
    assert_true(w.reply.complete);
    p.first = 10; /* whole already */
    assert_int_equal(send_put(&p, slice_from(all, 10), true), 409);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
    assert_file("big", all);
    free((char *)(uintptr_t)all.p);
}

static void interrupted_without_a_range(void **state)
{
    struct slice all = sample_bytes(4, 100000);
    struct put p = put_of(PUT_UPLOAD_FILE, "f");
    struct upload_sink *k;

    (void)state;
    open_session();
    p = put_of(PUT_UPLOAD_FILE, "f");
    k = begin(&p, UINT64_MAX);
    feed(k, slice_first(all, 60000));
    upload_sink_close(&k);
    p.first = 60000;
    p.total = all.n;
    assert_int_equal(send_put(&p, slice_from(all, 60000), true), 201);
    /* and over again from the first byte, with other bytes */
    assert_int_equal(send(PUT_UPLOAD_FILE, "f", SLICE("new")), 201);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
    assert_file("f", SLICE("new"));
    assert_int_equal(held_by(all), '-');
    free((char *)(uintptr_t)all.p);
}

static void wrong_digests_and_lengths(void **state)
{
    struct slice big = sample_bytes(5, 80000);
    struct put p;
    struct upload_sink *k;
    struct snap sn;

    (void)state;
    open_session();
    for (int i = 0; i < 2; i++) {
        struct slice bytes = i == 0 ? SLICE("small") : big;

        p = put_of(PUT_UPLOAD_FILE, "f");
        p.digest_known = true;
        assert_int_equal(send_put(&p, bytes, true), 422);
        assert_int_equal(simple(PUT_UPLOAD_STATUS, "f"), 404);
        p.kind = PUT_FILE;
        assert_int_equal(send_put(&p, bytes, true), 422);
    }
    p = put_of(PUT_FILE, "f");
    k = begin(&p, 10);
    feed(k, SLICE("12345"));
    assert_int_equal(finish(&k), 400);
    k = begin(&p, 3);
    feed(k, SLICE("12345"));
    assert_int_equal(w.reply.status, 400);
    upload_sink_close(&k);
    assert_false(head(&sn));
    free((char *)(uintptr_t)big.p);
}

static void one_writer_a_path(void **state)
{
    struct put p;
    struct upload_sink *k;

    (void)state;
    open_session();
    p = put_of(PUT_UPLOAD_FILE, "f");
    k = begin(&p, 100000);
    assert_int_equal(send(PUT_UPLOAD_FILE, "g", SLICE("x")), 201);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 409);
    assert_int_equal(simple(PUT_UPLOAD_ABORT, ""), 409);
    upload_sink_close(&k);
    assert_int_equal(simple(PUT_UPLOAD_ABORT, ""), 204);
    assert_int_equal(simple(PUT_UPLOAD_STATUS, ""), 404);
    assert_int_equal(send(PUT_UPLOAD_FILE, "f", SLICE("x")), 404);
    assert_int_equal(held_by(SLICE("x")), '-');
}

/* Who comes last has the file; but not before the one that it has taken it from is out. */
static void a_later_request_takes_the_file_over(void **state)
{
    struct slice all = sample_bytes(3, 300000);
    struct upload_body body = {.length = 200000};
    struct upload_sink *k;
    struct upload_sink *late = NULL;
    struct put p;
    struct put head;

    (void)state;
    w_yields = 0;
    open_session();
    p = put_of(PUT_UPLOAD_FILE, "big");
    p.total = all.n;
    k = begin(&p, all.n);
    feed(k, slice_first(all, 100000));

    assert_int_equal(simple(PUT_UPLOAD_STATUS, "big"), 200); /* who only looks disturbs nobody */
    assert_int_equal(w_yields, 0);
    head = put_of(PUT_UPLOAD_STATUS, "big");
    head.take_over = true;
    fresh_reply();
    assert_int_equal(upload_run(w.u, &head, NOW, &w.reply, NULL), E_BUSY);
    assert_int_equal(w_yields, 1);
    assert_int_equal(upload_run(w.u, &head, NOW, &w.reply, NULL), E_BUSY);
    p.first = 100000;
    assert_int_equal(upload_sink_open(w.u, &p, &body, &late, &w.reply, NULL), E_BUSY);
    assert_null(late);
    assert_int_equal(w.reply.status, 0);
    assert_int_equal(w_yields, 1); /* asked once */

    upload_sink_close(&k);
    assert_int_equal(run(&head), 200);
    assert_int_equal(w.reply.offset, 100000);
    assert_int_equal(send_put(&p, slice_from(all, 100000), true), 201);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
    assert_file("big", all);
    assert_int_equal(w_yields, 1);
    free((char *)(uintptr_t)all.p);
}

static void foreign_and_unknown_sessions(void **state)
{
    struct put p;

    (void)state;
    open_session();
    p = put_of(PUT_UPLOAD_COMMIT, "");
    p.name = SLICE("me/other");
    assert_int_equal(run(&p), 404);
    p = put_of(PUT_UPLOAD_FILE, "f");
    p.repo = SLICE("other");
    assert_null(begin(&p, 1));
    assert_int_equal(w.reply.status, 404);
    memset(w.id, '0', UPLOAD_ID);
    assert_int_equal(simple(PUT_UPLOAD_STATUS, ""), 404);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 404);
}

static int count_row(void *arg, struct slice key, struct slice value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return 0;
}

/* Of all sessions and their files. */
static int upload_rows(void)
{
    int n = 0;

    assert_int_equal(store_scan(fix->s, TABLE_UPLOAD, SLICE_NONE, SLICE_NONE, count_row, &n, NULL),
                     0);
    return n;
}

static void sessions_expire(void **state)
{
    struct slice big = sample_bytes(6, 50000);
    uint64_t dropped = 0;
    struct put p;

    (void)state;
    open_session();
    p = put_of(PUT_UPLOAD_FILE, "part");
    p.total = 60000;
    assert_int_equal(send_put(&p, big, true), 308);
    assert_int_equal(send(PUT_UPLOAD_FILE, "whole", SLICE("w")), 201);
    assert_int_equal(upload_rows(), 3);
    assert_int_equal(held_by(SLICE("w")), 'u');
    assert_int_equal(upload_expire(w.u, NOW + UPLOAD_EXPIRE_S, &dropped, NULL), 0);
    assert_int_equal(dropped, 0);
    restart();
    assert_int_equal(upload_expire(w.u, NOW + UPLOAD_EXPIRE_S + 1, &dropped, NULL), 0);
    assert_int_equal(dropped, 1);
    assert_int_equal(simple(PUT_UPLOAD_STATUS, ""), 404);
    assert_int_equal(upload_rows(), 0);
    assert_int_equal(held_by(SLICE("w")), '-');
    free((char *)(uintptr_t)big.p);
}

/* Between the last file and the commit: the session goes on where it was, and the store has nothing
 * to repair. */
static void killed_between_stage_and_commit(void **state)
{
    struct slice big = sample_bytes(7, 90000);
    struct verify_report rep = {0};
    struct put p;

    (void)state;
    open_session();
    assert_int_equal(send(PUT_UPLOAD_FILE, "a", big), 201);
    p = put_of(PUT_UPLOAD_FILE, "b");
    p.total = 100000;
    assert_int_equal(send_put(&p, big, true), 308);
    restart();
    assert_int_equal(verify_run(fix->s, true, false, NULL, NULL, NULL, &rep, NULL), 0);
    assert_int_equal(rep.damaged + rep.missing + rep.bad_rows, 0);
    assert_int_equal(send(PUT_UPLOAD_FILE, "b", SLICE("short")), 201);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
    assert_file("a", big);
    assert_file("b", SLICE("short"));
    free((char *)(uintptr_t)big.p);
}

static int no_room(void *arg, uint64_t need_bytes)
{
    *(uint64_t *)arg = need_bytes;
    return E_NOSPACE;
}

static void a_full_store_says_507(void **state)
{
    struct put p = put_of(PUT_FILE, "huge");
    uint64_t asked = 0;

    (void)state;
    uploads_on_full(w.u, no_room, &asked);
    assert_null(begin(&p, UINT64_MAX / 4));
    assert_int_equal(w.reply.status, 507);
    assert_int_equal(asked, 0); /* nothing is put out for an announced length */
    open_session();
    p = put_of(PUT_UPLOAD_FILE, "huge");
    assert_null(begin(&p, UINT64_MAX / 4));
    assert_int_equal(w.reply.status, 507);
    assert_int_equal(send(PUT_UPLOAD_FILE, "huge", SLICE("not so")), 201);
    assert_int_equal(simple(PUT_UPLOAD_COMMIT, ""), 201);
}

static void open_session_of(uint64_t client)
{
    struct put p = put_of(PUT_UPLOAD_OPEN, "");

    w.id[0] = '\0';
    p.upload_id = SLICE("");
    p.client = client;
    assert_int_equal(run(&p), 201);
    snprintf(w.id, sizeof w.id, "%s", w.reply.location + 25);
}

static uint64_t parked_bytes(void)
{
    struct store_space space;

    store_space(fix->s, &space);
    return space.parked_bytes;
}

/* Small files and large ones, whole or not, once each, however often they are sent. */
static void bytes_of_a_client(void **state)
{
    struct slice bytes = sample_bytes(8, 30000), more = sample_bytes(9, 50000);

    (void)state;
    uploads_limit(w.u, 256, 100000);
    open_session_of(7);
    assert_int_equal(send(PUT_UPLOAD_FILE, "a", bytes), 201);
    assert_int_equal(send(PUT_UPLOAD_FILE, "b", bytes), 201);
    assert_int_equal(send(PUT_UPLOAD_FILE, "c", bytes), 201);
    assert_int_equal(send(PUT_UPLOAD_FILE, "d", bytes), 507);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(send(PUT_UPLOAD_FILE, "a", bytes), 201);
    }
    assert_int_equal(send(PUT_UPLOAD_FILE, "d", bytes), 507);
    assert_int_equal(send(PUT_UPLOAD_FILE, "a", SLICE("short")), 201);
    assert_int_equal(send(PUT_UPLOAD_FILE, "d", bytes), 201);
    assert_int_equal(send(PUT_UPLOAD_FILE, "b", more), 507);
    assert_int_equal(simple(PUT_UPLOAD_ABORT, ""), 204);
    open_session_of(7);
    assert_int_equal(send(PUT_UPLOAD_FILE, "a", more), 201);
    assert_int_equal(send(PUT_UPLOAD_FILE, "b", more), 201);
    free((char *)(uintptr_t)bytes.p);
    free((char *)(uintptr_t)more.p);
}

/* What counts is what lies on the disk: of a body that begins further in front the rest is gone. */
static void begun_again_within(void **state)
{
    struct slice bytes = sample_bytes(10, 90000);
    struct put p;

    (void)state;
    uploads_limit(w.u, 256, 100000);
    open_session_of(7);
    for (unsigned i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%u", i);
        p = put_of(PUT_UPLOAD_FILE, name);
        p.total = 200000;
        assert_int_equal(send_put(&p, bytes, true), 308);
        p.first = 1;
        assert_int_equal(send_put(&p, SLICE("x"), true), 308);
        assert_int_equal(w.reply.offset, 2);
    }
    assert_true(parked_bytes() < 90000);
    assert_int_equal(send(PUT_UPLOAD_FILE, "whole", bytes), 201);
    restart();
    p = put_of(PUT_UPLOAD_FILE, "f0");
    p.total = 90000 + 1;
    assert_int_equal(simple(PUT_UPLOAD_STATUS, "f0"), 200);
    assert_int_equal(w.reply.offset, 2);
    free((char *)(uintptr_t)bytes.p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_shows_before_the_commit),
        TEST(single_files),
        TEST(conditions_of_single_files),
        TEST(of_two_commits_one_loses),
        TEST(races),
        TEST(replace_and_clash),
        TEST(resume_in_parts),
        TEST(interrupted_without_a_range),
        TEST(wrong_digests_and_lengths),
        TEST(one_writer_a_path),
        TEST(a_later_request_takes_the_file_over),
        TEST(foreign_and_unknown_sessions),
        TEST(sessions_expire),
        TEST(killed_between_stage_and_commit),
        TEST(a_full_store_says_507),
        TEST(bytes_of_a_client),
        TEST(begun_again_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
