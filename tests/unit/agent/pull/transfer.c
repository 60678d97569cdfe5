#include "agent/pull/transfer.h"

#include <signal.h>

#include "tests/harness/pulled.h"

/* --- what a head means ------------------------------------------------------------------------ */

#define FIELDS_MAX 4

struct judged {
    const char *what;
    int status;
    uint64_t length;
    struct xfer_field field[FIELDS_MAX];
    int rc;
    bool no_ranges; /* learned */
};

#define FIELD(name, value)                                                                         \
    {                                                                                              \
        SLICE(name), SLICE(value)                                                                  \
    }

static const struct pull_object known_size = {.size_bytes = 100, .etag = "\"a\""};

static int judge(const struct judged *c, const struct transfer_range *r, struct pull_object *o)
{
    struct xfer_head h = {
        .status = c->status, .content_length = c->length, .fields = c->field, .nfields = 0};

    while (h.nfields < FIELDS_MAX && c->field[h.nfields].name.p != NULL) {
        h.nfields++;
    }
    return transfer_judge(o, r, &h);
}

static void test_ranges(void **state)
{
    static const struct judged all[] = {
        {"as asked",
         206,
         10,
         {FIELD("content-range", "bytes 0-9/100"), FIELD("etag", "\"a\"")},
         0,
         false},
        {"a size left open", 206, 10, {FIELD("content-range", "bytes 0-9/*")}, 0, false},
        {"another range", 206, 10, {FIELD("content-range", "bytes 1-10/100")}, E_CHANGED, false},
        {"a shorter one", 206, 9, {FIELD("content-range", "bytes 0-8/100")}, E_CHANGED, false},
        {"another size", 206, 10, {FIELD("content-range", "bytes 0-9/101")}, E_CHANGED, false},
        {"no range", 206, 10, {FIELD("etag", "\"a\"")}, E_CHANGED, false},
        {"other units", 206, 10, {FIELD("content-range", "lines 0-9/100")}, E_CHANGED, false},
        {"another ETag",
         206,
         10,
         {FIELD("content-range", "bytes 0-9/100"), FIELD("etag", "\"b\"")},
         E_CHANGED,
         false},
        {"all of it", 200, 100, {FIELD("etag", "\"a\"")}, E_CHANGED, true},
        {"all of another", 200, 100, {FIELD("etag", "\"b\"")}, E_CHANGED, false},
        {"it is shorter now", 416, 0, {FIELD("etag", "\"a\"")}, E_CHANGED, false},
        {"elsewhere", 302, 0, {FIELD("location", "/b")}, E_PROTOCOL, false},
        {"no content", 204, 0, {FIELD("etag", "\"a\"")}, E_AGAIN, false},
    };
    const struct transfer_range r = {true, 0, 9};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct pull_object o = known_size;
        int rc = judge(&all[i], &r, &o);
        if (rc != all[i].rc || o.no_ranges != all[i].no_ranges) {
            fail_msg("%s: %d, %d", all[i].what, rc, o.no_ranges);
        }
    }
}

static void test_whole(void **state)
{
    static const struct judged all[] = {
        {"as known", 200, 100, {FIELD("etag", "\"a\"")}, 0, false},
        {"no length", 200, XFER_UNKNOWN, {FIELD("etag", "\"a\"")}, 0, false},
        {"another length", 200, 99, {FIELD("etag", "\"a\"")}, E_CHANGED, false},
        {"a range", 206, 100, {FIELD("content-range", "bytes 0-99/100")}, E_PROTOCOL, false},
        {"packed", 200, 100, {FIELD("content-encoding", "gzip")}, E_UNSUPPORTED, false},
        {"said to be plain", 200, 100, {FIELD("content-encoding", "Identity")}, 0, false},
        {"elsewhere", 301, 0, {FIELD("location", "/b")}, E_PROTOCOL, false},
    };
    const struct transfer_range r = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct pull_object o = known_size;
        int rc = judge(&all[i], &r, &o);
        if (rc != all[i].rc) {
            fail_msg("%s: %d", all[i].what, rc);
        }
    }
}

static void test_what_a_head_tells(void **state)
{
    struct pull_object o = {.size_bytes = SIZE_UNKNOWN};
    const struct transfer_range r = {0};
    struct digest d, other;
    char text[64];
    struct judged c = {"", 200, 100, {{SLICE("repr-digest"), SLICE_NONE}}, 0, false};

    (void)state;
    digest_of(SLICE("x"), &d);
    digest_of(SLICE("y"), &other);
    digest_repr(&d, text);
    c.field[0].value = slice_str(text);
    assert_int_equal(judge(&c, &r, &o), 0);
    assert_true(o.known && digest_eq(&o.digest, &d));
    assert_int_equal(o.size_bytes, 100);
    o.digest = other; /* another was asked for */
    assert_int_equal(judge(&c, &r, &o), E_CHANGED);
    assert_true(digest_eq(&o.digest, &other));
}

/* --- parts: a file of two, of which some are damaged on the way ------------------------------- */

enum { BYTES = PART_BYTES + 1000 };

struct object {
    char *p;
    struct digest digest, chunk[2];
    unsigned damage[2]; /* so many times */
    bool list_lies;     /* its chunks are other bytes' */
    bool no_list;
    unsigned asked[2];
    unsigned streams;
};

static void lay(struct object *o)
{
    *o = (struct object){.p = mem_new(BYTES)};
    for (size_t i = 0; i < BYTES; i++) {
        o->p[i] = (char)(i * 31 + i / 4099);
    }
    digest_of(slice_of(o->p, BYTES), &o->digest);
    digest_of(slice_of(o->p, PART_BYTES), &o->chunk[0]);
    digest_of(slice_of(o->p + PART_BYTES, BYTES - PART_BYTES), &o->chunk[1]);
}

static void give_list(struct object *o, struct buf *out)
{
    struct buf list = BUF_INIT(1 << 10);
    struct digest chunk[2] = {o->chunk[0], o->chunk[1]};

    chunk[1].b[0] ^= (uint8_t)o->list_lies;
    chunks_encode(&o->digest, BYTES, chunk, 2, &list);
    buf_addf(out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", list.n);
    buf_adds(out, buf_slice(&list));
    buf_free(&list);
}

static void answer(void *arg, struct slice request, struct buf *out)
{
    struct object *o = arg;
    const char *range = memmem(request.p, request.n, "Range: bytes=", 13);
    size_t from = range != NULL ? strtoul(range + 13, NULL, 10) : 0;
    size_t n = range == NULL || from > 0 ? BYTES - from : PART_BYTES;
    char text[64];

    if (slice_starts(request, SLICE("GET /list "))) {
        give_list(o, out);
        return;
    }
    digest_repr(&o->digest, text);
    buf_addf(out, "HTTP/1.1 %s\r\nConnection: close\r\nETag: \"a\"\r\nRepr-Digest: %s\r\n",
             range != NULL ? "206 Partial" : "200 OK", text);
    buf_addf(out, "Content-Length: %zu\r\n", n);
    if (!o->no_list) {
        buf_str(out, "Link: </list>; rel=\"describedby\"\r\n");
    }
    if (range != NULL) {
        buf_addf(out, "Content-Range: bytes %zu-%zu/%zu\r\n", from, from + n - 1, (size_t)BYTES);
    }
    buf_str(out, "\r\n");
    if (slice_starts(request, SLICE("HEAD "))) {
        return;
    }
    buf_add(out, o->p + from, n);
    if (range != NULL) {
        unsigned *times = &o->damage[from > 0];
        o->asked[from > 0]++;
        if (*times > 0) {
            --*times;
            out->p[out->n - 1] ^= 1;
        }
    } else {
        o->streams++;
    }
}

static void test_parts_in_parallel(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o);
    o.damage[1] = 2;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_true(scene_has(s, slice_of(o.p, BYTES)));
    assert_int_equal(o.asked[0], 1);
    assert_int_equal(o.asked[1], 3); /* damaged on the way: again, and only that part */
    assert_int_equal(o.streams, 0);
    free(o.p);
}

static void test_a_part_that_stays_damaged(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o);
    o.damage[1] = 100;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), E_CORRUPT);
    assert_non_null(strstr(s->why.text, "part 2 of 2 arrived damaged 3 times"));
    assert_int_equal(o.asked[1], 3);
    free(o.p);
}

static void test_without_a_list_one_stream(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o);
    o.no_list = true;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_true(scene_has(s, slice_of(o.p, BYTES)));
    assert_int_equal(o.streams, 1);
    free(o.p);
}

/* A list whose chunks are of other bytes than its digest: parts that come right are called
 * damaged. */
static void test_a_list_that_lies(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o);
    o.list_lies = true;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), E_CORRUPT);
    assert_false(scene_has(s, slice_of(o.p, BYTES)));
    free(o.p);
}

/* A part that an earlier run left has rotted since: it alone is fetched again. */
static void test_a_part_that_rotted(void **state)
{
    struct scene *s = *state;
    struct parts *p;
    struct buf state_text = BUF_INIT(1 << 20);
    struct object o;

    lay(&o);
    assert_int_equal(parts_open(s->world->local_cache, &o.digest, &o.digest, BYTES, "", &p, NULL),
                     0);
    assert_int_equal(pwrite(p->fd, o.p, PART_BYTES, 0), PART_BYTES);
    assert_int_equal(pwrite(p->fd, "rot", 3, 77), 3);
    parts_mark(p, 0, PART_DONE);
    parts_snapshot(p, &state_text);
    assert_int_equal(
        parts_save(s->world->local_cache, &o.digest, p->fd, buf_slice(&state_text), NULL), 0);
    parts_close(&p, NULL);
    buf_free(&state_text);
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_true(scene_has(s, slice_of(o.p, BYTES)));
    assert_int_equal(o.asked[0], 1);
    assert_int_equal(o.asked[1], 1);
    free(o.p);
}

int main(void)
{
#define SCENE(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_what_a_head_tells),
        SCENE(test_parts_in_parallel),
        SCENE(test_a_part_that_stays_damaged),
        SCENE(test_without_a_list_one_stream),
        SCENE(test_a_list_that_lies),
        SCENE(test_a_part_that_rotted),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
