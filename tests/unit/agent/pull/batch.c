#include "agent/pull/batch.h"

#include <signal.h>

#include "common/codec/blob_batch.h"
#include "tests/harness/pulled.h"

/* A folder of small files, "f00" to "f19", of which f18 and f19 are the same bytes; and how the
 * mirror answers many at once. */
enum { FILES = 20, TWIN = FILES - 2 };

struct folder {
    struct digest digest[FILES];
    bool no_batches;   /* 404 */
    size_t cut;        /* the first answer ends within that record; 0: it does not */
    int wrong;         /* this one comes with other bytes among others; -1: none */
    int absent, alone; /* said to be */
    bool lies_singly;  /* other bytes by itself, too */
    unsigned batches;
    unsigned singles;
};

static struct slice bytes_of(size_t i, char room[32])
{
    return slice_of(room,
                    (size_t)snprintf(room, 32, "the bytes of %zu", i == FILES - 1 ? TWIN : i));
}

static void lay(struct folder *f)
{
    char room[32];

    *f = (struct folder){.wrong = -1, .absent = -1, .alone = -1};
    for (size_t i = 0; i < FILES; i++) {
        digest_of(bytes_of(i, room), &f->digest[i]);
    }
}

/* short_by: so much of the body does not come. */
static void reply(struct buf *out, const char *type, struct slice body, size_t short_by)
{
    buf_addf(out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\n", type);
    buf_addf(out, "Content-Length: %zu\r\n\r\n", body.n + short_by);
    buf_adds(out, body);
}

static void give_listing(struct folder *f, struct buf *out)
{
    struct buf doc = BUF_INIT(1 << 20);
    char hex[DIGEST_HEX + 1];
    char room[32];

    buf_str(&doc, "{\"entries\":[");
    for (size_t i = 0; i < FILES; i++) {
        digest_format(&f->digest[i], hex);
        buf_addf(&doc, "%s{\"path\":\"f%02zu\",\"size\":%zu,\"sha256\":\"%s\"}", i > 0 ? "," : "",
                 i, bytes_of(i, room).n, hex);
    }
    buf_str(&doc, "]}");
    reply(out, "application/json", buf_slice(&doc), 0);
    buf_free(&doc);
}

static int index_of(const struct folder *f, const char *digest)
{
    for (int i = 0; i < FILES; i++) {
        if (memcmp(f->digest[i].b, digest, DIGEST_BYTES) == 0) {
            return i;
        }
    }
    fail();
    return -1;
}

static void give_batch(struct folder *f, struct slice asked, struct buf *out)
{
    struct buf body = BUF_INIT(1 << 20);
    char room[32];

    for (size_t at = 0; at < asked.n; at += DIGEST_BYTES) {
        int i = index_of(f, asked.p + at);
        struct slice bytes = bytes_of((size_t)i, room);
        if (f->batches == 1 && f->cut != 0 && at / DIGEST_BYTES == f->cut) {
            blob_batch_put_head(&body, (uint32_t)bytes.n);
            buf_adds(&body, slice_first(bytes, 3));
            break;
        }
        if (i == f->absent || i == f->alone) {
            blob_batch_put_head(&body, i == f->absent ? BLOB_BATCH_ABSENT : BLOB_BATCH_ALONE);
            continue;
        }
        room[0] = i == f->wrong ? 'T' : room[0];
        blob_batch_put_head(&body, (uint32_t)bytes.n);
        buf_adds(&body, bytes);
    }
    reply(out, BLOB_BATCH_BLOBS, buf_slice(&body), f->batches == 1 && f->cut != 0 ? 100 : 0);
    buf_free(&body);
}

static void answer(void *arg, struct slice request, struct buf *out)
{
    struct folder *f = arg;
    const char *end = memmem(request.p, request.n, "\r\n\r\n", 4);
    char room[32];

    if (slice_starts(request, SLICE("GET /m/folder/?recursive=1 "))) {
        give_listing(f, out);
    } else if (slice_starts(request, SLICE("POST " BLOB_BATCH_PATH " ")) && f->no_batches) {
        buf_str(out, "HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    } else if (slice_starts(request, SLICE("POST " BLOB_BATCH_PATH " "))) {
        f->batches++;
        give_batch(f, slice_from(request, (size_t)(end + 4 - request.p)), out);
    } else if (slice_starts(request, SLICE("GET /m/folder/f"))) {
        struct slice bytes = bytes_of(strtoul(request.p + 15, NULL, 10), room);
        f->singles++;
        room[0] = f->lies_singly ? 'T' : room[0];
        reply(out, "text/plain", bytes, 0);
    } else {
        fail();
    }
}

static void assert_all_there(struct scene *s)
{
    char room[32];

    for (size_t i = 0; i < FILES; i++) {
        assert_true(scene_has(s, bytes_of(i, room)));
    }
}

static void test_many_in_an_answer(void **state)
{
    struct scene *s = *state;
    struct folder f;

    lay(&f);
    assert_int_equal(scene_pull(s, "m/folder/", answer, &f), 0);
    assert_all_there(s);
    assert_int_equal(f.batches, 1);
    assert_int_equal(f.singles, 0);
    assert_int_equal(s->artifact.nfiles, FILES);
    /* Each once, though two names have the same bytes. */
    assert_int_equal(s->artifact.fetched_bytes,
                     s->artifact.size_bytes - s->artifact.file[TWIN].size_bytes);
}

static void test_what_is_here_is_not_asked_for(void **state)
{
    struct scene *s = *state;
    struct folder f;

    lay(&f);
    assert_int_equal(scene_pull(s, "m/folder/", answer, &f), 0);
    assert_int_equal(scene_pull(s, "m/folder/", answer, &f), 0);
    assert_int_equal(f.batches, 1);
    assert_int_equal(s->artifact.fetched_bytes, 0);
}

static void test_an_answer_that_broke_off_is_good_as_far_as_it_goes(void **state)
{
    struct scene *s = *state;
    struct folder f;

    lay(&f);
    f.cut = 5;
    assert_int_equal(scene_pull(s, "m/folder/", answer, &f), 0);
    assert_all_there(s);
    assert_int_equal(f.batches, 2);
    assert_int_equal(f.singles, 0);
    assert_int_equal(s->artifact.fetched_bytes,
                     s->artifact.size_bytes - s->artifact.file[TWIN].size_bytes);
}

static void test_some_come_by_themselves(void **state)
{
    struct scene *s = *state;
    struct folder f;

    lay(&f);
    f.wrong = 3;
    f.absent = 4;
    f.alone = 5;
    assert_int_equal(scene_pull(s, "m/folder/", answer, &f), 0);
    assert_all_there(s);
    assert_int_equal(f.batches, 1);
    assert_int_equal(f.singles, 3);
}

static void test_a_mirror_without_batches(void **state)
{
    struct scene *s = *state;
    struct folder f;

    lay(&f);
    f.no_batches = true;
    assert_int_equal(scene_pull(s, "m/folder/", answer, &f), 0);
    assert_all_there(s);
    assert_int_equal(f.singles, FILES - 1);
}

static void test_one_that_stays_wrong(void **state)
{
    struct scene *s = *state;
    struct folder f;
    char room[32];

    lay(&f);
    f.wrong = 3;
    f.lies_singly = true;
    assert_int_equal(scene_pull(s, "m/folder/", answer, &f), E_CORRUPT);
    assert_non_null(strstr(s->why.text, "/m/folder/f03"));
    assert_false(scene_has(s, bytes_of(3, room)));
}

int main(void)
{
#define SCENE(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)
    const struct CMUnitTest tests[] = {
        SCENE(test_many_in_an_answer),
        SCENE(test_what_is_here_is_not_asked_for),
        SCENE(test_an_answer_that_broke_off_is_good_as_far_as_it_goes),
        SCENE(test_some_come_by_themselves),
        SCENE(test_a_mirror_without_batches),
        SCENE(test_one_that_stays_wrong),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
