/* dead_list.c - fuzzes a list of condemned objects with a checksum that is right, and a key of the
 * bucket: every object has a key that names it again. */
#include "server/cluster/dead_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_object(const struct dead_object *o)
{
    char key[CONTENT_KEY_ROOM];
    struct dead_object same;

    dead_object_key(o, key);
    CHECK(dead_object_parse(slice_str(key), &same));
    CHECK(same.kind == o->kind && same.nonce == o->nonce);
}

static void read_list(struct slice bytes)
{
    struct buf again = BUF_INIT(DEAD_LIST_BYTES_MAX);
    struct slice objects;
    struct dead_object o;
    struct err e = {0};
    int rc = dead_list_open(bytes, &objects, &e);

    CHECK(rc == 0 || rc == E_CORRUPT || rc == E_UNSUPPORTED);
    CHECK(rc == 0 || e.text[0] != '\0');
    dead_list_begin(&again);
    while (rc == 0 && dead_list_next(&objects, &o)) {
        check_object(&o);
        dead_list_add(&again, &o);
    }
    dead_list_finish(&again);
    CHECK(rc != 0 || slice_eq(buf_slice(&again), bytes));
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf b = BUF_INIT(DEAD_LIST_BYTES_MAX);
    struct dead_object o;
    struct digest d;

    if (dead_object_parse(slice_of(p, n), &o)) {
        check_object(&o);
    }
    read_list(slice_of(p, n));
    buf_add(&b, p, n);
    digest_of(buf_slice(&b), &d);
    buf_add(&b, d.b, DIGEST_BYTES);
    read_list(buf_slice(&b));
    buf_free(&b);
    return 0;
}
