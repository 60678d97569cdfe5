#include "server/upload/form_upload.h"

#include <pthread.h>

#include "server/store/tree.h"
#include "tests/harness/store.h"

enum { NOW = 1800000000, LARGE = 300000, AT_ONCE = 6 };

static struct fixture *fix;
static struct uploads *u;
static struct upload_reply reply;

static int setup(void **state)
{
    fixture_setup(state);
    fix = *state;
    u = uploads_open(fix->s);
    reply = (struct upload_reply){.body = BUF_INIT(1 << 20)};
    return 0;
}

static int teardown(void **state)
{
    upload_reply_free(&reply);
    uploads_close(&u);
    return fixture_teardown(state);
}

static struct form_upload *take_in(struct slice bytes, size_t piece, uint64_t max)
{
    const struct put put = {.kind = PUT_FORM, .repo = SLICE("models"), .max_bytes = max};
    struct form_upload *k = form_upload_open(u, &put);
    struct buf body = reply.body;

    buf_clear(&body);
    reply = (struct upload_reply){.body = body};
    while (bytes.n != 0 && reply.status == 0) {
        size_t n = bytes.n < piece ? bytes.n : piece;
        assert_int_equal(form_upload_write(k, slice_first(bytes, n), &reply, NULL), 0);
        bytes = slice_from(bytes, n);
    }
    return k;
}

static int publish(struct form_upload *k, const char *path, struct upload_reply *out)
{
    const struct form_upload_beside beside[] = {{SLICE("p.about"), SLICE("{}")},
                                                {SLICE("p.meta"), SLICE("meta")}};

    return form_upload_publish(k, SLICE("simple/p"), slice_str(path), beside, 2, NOW, out, NULL);
}

static void assert_tree(uint64_t seq, uint64_t entries)
{
    struct snap sn;

    assert_int_equal(head_get(fix->s, SLICE("models"), SLICE("simple/p"), &sn, NULL), 0);
    assert_int_equal(sn.seq, seq);
    assert_int_equal(sn.entries, entries);
}

static void a_file_and_what_is_beside_it(void **state)
{
    struct slice bytes = sample_bytes(1, LARGE);
    struct buf read = BUF_INIT(LARGE);
    struct form_upload *k = take_in(bytes, 1000, 0);
    struct blob *b = NULL;
    struct digest d;
    struct snap none;

    (void)state;
    digest_of(bytes, &d);
    assert_int_equal(form_upload_bytes(k), LARGE);
    assert_true(digest_eq(form_upload_digest(k), &d));
    assert_int_equal(form_upload_look(k, &b, NULL), 0);
    assert_int_equal(blob_size_bytes(b), LARGE);
    blob_release(&b);
    assert_int_equal(head_get(fix->s, SLICE("models"), SLICE("simple/p"), &none, NULL), E_NOTFOUND);
    assert_int_equal(publish(k, "p", &reply), 0);
    assert_int_equal(reply.status, 201);
    assert_true(reply.published);
    form_upload_close(&k);
    assert_tree(1, 3);
    assert_int_equal(blob_read_whole(fix->s, &d, &read, NULL), 0);
    assert_true(slice_eq(buf_slice(&read), bytes));
    buf_free(&read);
    free((void *)(uintptr_t)bytes.p);
}

static void a_name_stands_for_its_bytes(void **state)
{
    struct form_upload *k = take_in(SLICE("one"), 100, 0);

    (void)state;
    assert_int_equal(publish(k, "p", &reply), 0);
    assert_int_equal(reply.status, 201);
    form_upload_close(&k);
    k = take_in(SLICE("one"), 1, 0);
    assert_int_equal(publish(k, "p", &reply), 0);
    assert_int_equal(reply.status, 200);
    assert_false(reply.published);
    form_upload_close(&k);
    k = take_in(SLICE("two"), 100, 0);
    assert_int_equal(publish(k, "p", &reply), 0);
    assert_int_equal(reply.status, 409);
    form_upload_close(&k);
    assert_tree(1, 3);
    k = take_in(SLICE("two"), 100, 0);
    assert_int_equal(publish(k, "q", &reply), 0);
    assert_int_equal(reply.status, 201);
    form_upload_close(&k);
    assert_tree(2, 4);
}

static void a_bound(void **state)
{
    struct form_upload *k = take_in(SLICE("12345"), 2, 5);

    (void)state;
    assert_int_equal(reply.status, 0);
    assert_int_equal(publish(k, "p", &reply), 0);
    assert_int_equal(reply.status, 201);
    form_upload_close(&k);
    k = take_in(SLICE("123456"), 2, 5);
    assert_int_equal(reply.status, 413);
    form_upload_close(&k);
    assert_tree(1, 3);
}

static void nothing_stays_of_what_was_not_published(void **state)
{
    struct slice bytes = sample_bytes(2, LARGE);
    struct form_upload *k = take_in(bytes, LARGE, 0);
    struct blob *b = NULL;
    struct digest d = *form_upload_digest(k);

    (void)state;
    form_upload_close(&k);
    form_upload_close(&k);
    assert_int_equal(blob_open(fix->s, &d, &b, NULL), E_NOTFOUND);
    k = take_in(SLICE(""), 1, 0);
    assert_int_equal(form_upload_look(k, &b, NULL), E_INVALID);
    form_upload_close(&k);
    free((void *)(uintptr_t)bytes.p);
}

/* --- several at once --- */

struct one {
    pthread_t thread;
    struct form_upload *k;
    struct upload_reply reply;
    char path[8];
};

static void *run(void *arg)
{
    struct one *o = arg;

    assert_int_equal(publish(o->k, o->path, &o->reply), 0);
    return NULL;
}

static void race(bool one_name, unsigned good, uint64_t versions)
{
    struct one one[AT_ONCE];
    unsigned published = 0;
    struct snap sn;

    for (int i = 0; i < AT_ONCE; i++) {
        char text[8];
        snprintf(text, sizeof text, "n%d", i);
        snprintf(one[i].path, sizeof one[i].path, "f%d", one_name ? 0 : i);
        one[i].k = take_in(slice_str(text), 1, 0);
        one[i].reply = (struct upload_reply){.body = BUF_INIT(1 << 20)};
    }
    for (int i = 0; i < AT_ONCE; i++) {
        assert_int_equal(pthread_create(&one[i].thread, NULL, run, &one[i]), 0);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        pthread_join(one[i].thread, NULL);
        published += one[i].reply.status == 201;
        assert_true(one[i].reply.status == 201 || one[i].reply.status == 409);
        upload_reply_free(&one[i].reply);
        form_upload_close(&one[i].k);
    }
    assert_int_equal(published, good);
    assert_int_equal(head_get(fix->s, SLICE("models"), SLICE("simple/p"), &sn, NULL), 0);
    assert_int_equal(sn.seq, versions);
}

static void one_name_is_given_once(void **state)
{
    (void)state;
    race(true, 1, 1);
}

static void nobody_loses_anothers_file(void **state)
{
    (void)state;
    race(false, AT_ONCE, AT_ONCE);
    assert_tree(AT_ONCE, AT_ONCE + 2);
}

int main(void)
{
#define ONE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ONE(a_file_and_what_is_beside_it),
        ONE(a_name_stands_for_its_bytes),
        ONE(a_bound),
        ONE(nothing_stays_of_what_was_not_published),
        ONE(one_name_is_given_once),
        ONE(nobody_loses_anothers_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
