#include "server/upload/parts.h"

#include "server/upload/upload_grant.h"
#include "tests/harness/store.h"

enum { NOW = 1800000000, EACH = 40000, SIZE = 3 * EACH + 7 };

struct world {
    struct uploads *u;
    struct upload_reply reply;
    struct session session;
    struct put_object object;
    struct slice bytes;
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
                        .name = SLICE("me/gpt"),
                        .path = SLICE(""),
                        .upload_id = slice_str(w.session.id),
                        .digest_known = true,
                        .digest = w.object.digest,
                        .total = UINT64_MAX};
}

static void fresh_reply(void)
{
    struct buf body = w.reply.body;

    buf_clear(&body);
    w.reply = (struct upload_reply){.body = body};
}

/* Runs one without a body. */
static int run(struct put p, uint64_t now)
{
    struct err e = {0};
    int rc;

    fresh_reply();
    rc = upload_run(w.u, &p, now, &w.reply, &e);
    return rc != 0 ? rc : w.reply.status;
}

/* An offer that awaits w.object in parts of EACH bytes: of this size no batch would divide one. */
static void await(void)
{
    struct batch *b = batch_new();

    assert_int_equal(run(put_of(PUT_UPLOAD_GRANT), NOW), 200);
    memcpy(w.session.id, w.reply.upload, sizeof w.session.id);
    snprintf(w.session.repo, sizeof w.session.repo, "models");
    snprintf(w.session.name, sizeof w.session.name, "me/gpt");
    parts_await(&w.session, &w.object, EACH, b);
    assert_int_equal(store_commit(fix->s, &b, COMMIT_SYNC, NULL), 0);
}

static int setup(void **state)
{
    fixture_setup(state);
    fix = *state;
    w = (struct world){.reply.body = BUF_INIT(1 << 20), .bytes = sample_bytes(5, SIZE)};
    digest_of(w.bytes, &w.object.digest);
    w.object.size_bytes = SIZE;
    w.u = uploads_open(fix->s);
    await();
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

static struct slice bytes_of(uint32_t n)
{
    size_t first = (n - 1) * EACH;
    return slice_first(slice_from(w.bytes, first), first + EACH <= SIZE ? EACH : SIZE - first);
}

static int begin(uint32_t n, uint64_t length, struct upload_sink **out)
{
    struct upload_body body = {.length = length, .yield = on_yield, .yield_arg = &yields};
    struct put p = put_of(PUT_PART);
    struct err e = {0};
    int rc;

    p.part = n;
    fresh_reply();
    rc = upload_sink_open(w.u, &p, &body, out, &w.reply, &e);
    return rc != 0 ? rc : w.reply.status;
}

static void feed(struct upload_sink *k, struct slice bytes)
{
    while (bytes.n != 0) {
        size_t n = bytes.n < 1013 ? bytes.n : 1013;
        assert_int_equal(upload_sink_write(k, slice_first(bytes, n), &w.reply, NULL), 0);
        assert_int_equal(w.reply.status, 0);
        bytes = slice_from(bytes, n);
    }
}

static int send_bytes(uint32_t n, struct slice bytes)
{
    struct upload_sink *k;
    int status = begin(n, bytes.n, &k);

    if (status != 0) {
        return status;
    }
    feed(k, bytes);
    assert_int_equal(upload_sink_finish(&k, NOW, &w.reply, NULL), 0);
    return w.reply.status;
}

static int send(uint32_t n)
{
    return send_bytes(n, bytes_of(n));
}

/* The answer to one that is not taken to its end. */
static int refused(uint32_t n)
{
    struct slice bytes = bytes_of(n);
    struct upload_sink *k;

    assert_int_equal(begin(n, bytes.n, &k), 0);
    while (w.reply.status == 0 && bytes.n != 0) {
        size_t some = bytes.n < 1013 ? bytes.n : 1013;
        assert_int_equal(upload_sink_write(k, slice_first(bytes, some), &w.reply, NULL), 0);
        bytes = slice_from(bytes, some);
    }
    upload_sink_close(&k);
    return w.reply.status;
}

static int end(void)
{
    struct put p = put_of(PUT_PARTS_END);

    p.parts_count = 4;
    return run(p, NOW);
}

static void assert_whole(void)
{
    bool has = false;
    struct put p = put_of(PUT_UPLOAD_GRANT);

    assert_int_equal(upload_grant_tree_has(fix->s, &p, &w.object.digest, &has, NULL, NULL), 0);
    assert_true(has);
    assert_blob(fix->s, &w.object.digest, SIZE);
}

static void in_order_and_not(void **state)
{
    static const uint32_t orders[][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}, {2, 1, 4, 3}, {1, 3, 4, 2}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        for (int k = 0; k < 4; k++) {
            assert_int_equal(end(), 400);
            assert_int_equal(send(orders[i][k]), 200);
            assert_int_equal(strlen(w.reply.etag), 34);
        }
        assert_int_equal(end(), 200);
        assert_whole();
        assert_int_equal(end(), 200);
        assert_int_equal(send(1), 404);
        ((char *)(uintptr_t)w.bytes.p)[i]++; /* another object */
        digest_of(w.bytes, &w.object.digest);
        await();
    }
}

static void over_restarts(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(send(n), 200);
        restart();
    }
    assert_int_equal(end(), 200);
    restart();
    assert_whole();
    assert_int_equal(end(), 200);
}

static void differing_parts_are_void(void **state)
{
    char *bad = mem_new(EACH);

    (void)state;
    memset(bad, 'x', EACH);
    assert_int_equal(send_bytes(1, slice_of(bad, EACH)), 200);
    assert_int_equal(send(2), 200); /* the digest has run over both */
    assert_int_equal(send(1), 503);
    assert_int_equal(send(1), 200);
    assert_int_equal(send(3), 200);
    assert_int_equal(send(3), 200);
    assert_int_equal(send(4), 200);
    assert_int_equal(send_bytes(2, slice_of(bad, EACH)), 503);
    assert_int_equal(end(), 400);
    assert_int_equal(send(2), 200);
    assert_int_equal(end(), 200);
    assert_whole();
    free(bad);
}

/* A part is rewritten while others are at it: what their running digest saw of it is void, too. */
static void a_digest_under_way_is_void(void **state)
{
    struct upload_sink *later;
    char *bad = mem_new(EACH);

    (void)state;
    memset(bad, 'x', EACH);
    assert_int_equal(send_bytes(1, slice_of(bad, EACH)), 200);
    assert_int_equal(begin(2, EACH, &later), 0);
    assert_int_equal(send(1), 503);
    fresh_reply();
    feed(later, bytes_of(2));
    assert_int_equal(upload_sink_finish(&later, NOW, &w.reply, NULL), 0);
    assert_int_equal(send(1), 200);
    assert_int_equal(send(3), 200);
    assert_int_equal(send(4), 200);
    assert_int_equal(end(), 200);
    assert_whole();
    free(bad);
}

static void wrong_wholes_go(void **state)
{
    struct store_space space;

    (void)state;
    ((char *)(uintptr_t)w.bytes.p)[100]++;
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(send(n), 200);
    }
    assert_int_equal(end(), 422);
    assert_int_equal(end(), 404);
    assert_int_equal(send(1), 404);
    store_space(fix->s, &space);
    assert_int_equal(space.staged_bytes + space.parked_bytes, 0);
    ((char *)(uintptr_t)w.bytes.p)[100]--;
    await();
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(send(n), 200);
    }
    assert_int_equal(end(), 200);
    assert_whole();
}

static void one_request_a_part(void **state)
{
    struct upload_sink *first;
    struct upload_sink *second;

    (void)state;
    yields = 0;
    assert_int_equal(begin(1, EACH, &first), 0);
    feed(first, slice_first(bytes_of(1), 5000));
    assert_int_equal(begin(1, EACH, &second), E_BUSY);
    assert_null(second);
    assert_int_equal(yields, 1);
    assert_int_equal(end(), E_BUSY);
    assert_int_equal(send(2), 200); /* another part is another matter */
    upload_sink_close(&first);
    assert_int_equal(end(), 400); /* what broke off counts for nothing */
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(send(n), 200);
    }
    assert_int_equal(end(), 200);
    assert_whole();
}

static void what_no_part_is(void **state)
{
    struct upload_sink *k;

    (void)state;
    assert_int_equal(begin(0, EACH, &k), 404);
    assert_int_equal(begin(5, 7, &k), 404);
    assert_int_equal(begin(4, EACH, &k), 400);
    assert_int_equal(begin(1, 0, &k), 400);
    assert_int_equal(begin(4, UINT64_MAX, &k), 0); /* chunked: counted as it comes */
    assert_int_equal(upload_sink_write(k, slice_of(w.bytes.p, 8), &w.reply, NULL), 0);
    assert_int_equal(w.reply.status, 400);
    upload_sink_close(&k);
    assert_int_equal(begin(4, UINT64_MAX, &k), 0);
    feed(k, slice_first(bytes_of(4), 6));
    assert_int_equal(upload_sink_finish(&k, NOW, &w.reply, NULL), 0);
    assert_int_equal(w.reply.status, 400);
    w.object.digest.b[0] ^= 1;
    assert_int_equal(begin(1, EACH, &k), 404);
    assert_int_equal(end(), 404);
}

/* Who asks again in time goes on where parts have come to; later, and of another size, there is a
 * new place. */
static void asked_for_again(void **state)
{
    struct put p = put_of(PUT_UPLOAD_GRANT);
    struct put_object other = w.object;
    char id[UPLOAD_ID + 1];
    uint64_t each = 0;

    (void)state;
    assert_int_equal(parts_recall(fix->s, &p, &w.object, NOW + 3600, id, &each, NULL), 0);
    assert_string_equal(id, w.session.id);
    assert_int_equal(each, EACH);
    assert_int_equal(
        parts_recall(fix->s, &p, &w.object, NOW + UPLOAD_EXPIRE_S / 2, id, &each, NULL),
        E_NOTFOUND);
    other.size_bytes++;
    assert_int_equal(parts_recall(fix->s, &p, &other, NOW, id, &each, NULL), E_NOTFOUND);
    p.name = SLICE("me/other");
    assert_int_equal(parts_recall(fix->s, &p, &w.object, NOW, id, &each, NULL), E_NOTFOUND);
}

static int count_row(void *arg, struct slice key, struct slice value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return 0;
}

static void forgotten_after_a_day(void **state)
{
    struct upload_sink *k;
    struct store_space space;
    uint64_t dropped;
    int rows = 0;

    (void)state;
    assert_int_equal(send(1), 200);
    assert_int_equal(begin(2, EACH, &k), 0);
    assert_int_equal(upload_expire(w.u, NOW + 2 * UPLOAD_EXPIRE_S, &dropped, NULL), 0);
    assert_int_equal(dropped, 0); /* somebody is at it */
    upload_sink_close(&k);
    assert_int_equal(upload_expire(w.u, NOW + 2 * UPLOAD_EXPIRE_S, &dropped, NULL), 0);
    assert_int_equal(dropped, 1);
    assert_int_equal(send(2), 404);
    assert_int_equal(
        store_scan(fix->s, TABLE_UPLOAD, SLICE(""), SLICE_NONE, count_row, &rows, NULL), 0);
    assert_int_equal(
        store_scan(fix->s, TABLE_PARTIAL, SLICE(""), SLICE_NONE, count_row, &rows, NULL), 0);
    assert_int_equal(rows, 0);
    restart();
    store_space(fix->s, &space);
    assert_int_equal(space.staged_bytes + space.parked_bytes, 0);
}

/* The file is lost (somebody has tidied up): its parts are, too, and come again. */
static void a_lost_stage(void **state)
{
    char line[256];

    (void)state;
    assert_int_equal(send(1), 200);
    assert_int_equal(send(2), 200);
    snprintf(line, sizeof line, "rm -f %s/partial/*", fix->dir);
    assert_int_equal(system(line), 0); /* NOLINT: a folder of our own */
    assert_int_equal(send(3), 200);
    assert_int_equal(end(), 400);
    assert_int_equal(send(1), 200);
    assert_int_equal(send(2), 200);
    assert_int_equal(send(4), 200);
    assert_int_equal(system(line), 0); /* NOLINT: the same, just before the end */
    assert_int_equal(end(), 400);
    assert_non_null(strstr(w.reply.body.p, "part 1 of 4 is missing; send it"));
    for (uint32_t n = 1; n <= 4; n++) {
        assert_int_equal(send(n), 200);
    }
    assert_int_equal(end(), 200);
    assert_whole();
}

static void how_objects_are_divided(void **state)
{
    struct put_object o[UPLOAD_GRANT_OBJECTS_MAX] = {{.size_bytes = PARTS_FROM_BYTES - 1},
                                                     {.size_bytes = PARTS_FROM_BYTES},
                                                     {.size_bytes = (uint64_t)128 << 30},
                                                     {.size_bytes = ((uint64_t)128 << 30) + 1},
                                                     {.size_bytes = INT64_MAX}};
    uint64_t each[UPLOAD_GRANT_OBJECTS_MAX];
    uint32_t all = 0;

    (void)state;
    parts_divide(o, 4, each);
    assert_int_equal(each[0], 0);
    assert_int_equal(each[1], PART_BYTES);
    assert_int_equal(each[2], PART_BYTES);
    assert_int_equal(parts_count(o[2].size_bytes, each[2]), PARTS_MAX);
    assert_int_equal(each[3], 2 * PART_BYTES);
    parts_divide(o + 4, 1, each);
    assert_int_equal(parts_count(o[4].size_bytes, each[0]), PARTS_MAX);
    for (size_t i = 0; i < UPLOAD_GRANT_OBJECTS_MAX; i++) {
        o[i].size_bytes = i % 2 != 0 ? UINT64_C(1) << 40 : 5;
    }
    parts_divide(o, UPLOAD_GRANT_OBJECTS_MAX, each);
    for (size_t i = 0; i < UPLOAD_GRANT_OBJECTS_MAX; i++) {
        assert_true((each[i] != 0) == (i % 2 != 0));
        all += each[i] != 0 ? parts_count(o[i].size_bytes, each[i]) : 0;
    }
    assert_int_equal(all, PARTS_BATCH_MAX);
}

static uint64_t parked_bytes(void)
{
    struct store_space space;

    store_space(fix->s, &space);
    return space.parked_bytes;
}

/* Parts that are cut off, or void, neither count nor lie on the disk. */
static void bytes_of_a_client(void **state)
{
    const struct digest awaited[] = {w.object.digest, {{1}}};
    struct upload_sink *k;

    (void)state;
    uploads_limit(w.u, 8, EACH + 10000);
    assert_true(live_admit(w.u, w.session.id, 7, awaited, 2, &w.reply));
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(begin(1, EACH, &k), 0);
        feed(k, slice_first(bytes_of(1), 30000));
        upload_sink_close(&k);
    }
    assert_true(parked_bytes() <= 8192);
    assert_int_equal(send(2), 200);
    assert_int_equal(send(2), 200); /* once more */
    assert_int_equal(refused(1), 507);
    assert_int_equal(send_bytes(2, bytes_of(3)), 503); /* void */
    assert_true(parked_bytes() <= 24576);
    assert_int_equal(send(3), 200);
    assert_int_equal(refused(1), 507);
    uploads_limit(w.u, 8, 4 * EACH);
    assert_int_equal(send(1), 200);
    assert_int_equal(send(2), 200);
    assert_int_equal(send(4), 200);
    assert_int_equal(end(), 200);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(in_order_and_not),         TEST(over_restarts),
        TEST(differing_parts_are_void), TEST(a_digest_under_way_is_void),
        TEST(wrong_wholes_go),          TEST(one_request_a_part),
        TEST(what_no_part_is),          TEST(asked_for_again),
        TEST(forgotten_after_a_day),    TEST(a_lost_stage),
        TEST(how_objects_are_divided),  TEST(bytes_of_a_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
