#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <zlib.h>

#include "server/repo/python/wheel.h"

enum { ROOM = 400000, ANY = 0x1234 };

/* A zip file as it is made, with places to lie in. */
struct making {
    struct buf all, directory;
    unsigned count;
    bool zip64, deflate;
    uint16_t flags;
    int64_t header_off, bytes_off, packed_off, directory_off, count_off;
    uint32_t crc_off;
    size_t header_extra;
    const char *header_name;
    const char *comment;
};

static void put(struct buf *b, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_byte(b, (uint8_t)(v >> 8 * i));
    }
}

static struct making begin(void)
{
    return (struct making){
        .all = BUF_INIT(8 << 20), .directory = BUF_INIT(8 << 20), .deflate = true};
}

static struct slice pack(struct slice text, struct buf *room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text.p, .avail_in = (uInt)text.n};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = (Bytef *)buf_room(room, ROOM);
    z.avail_out = ROOM;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    buf_grew(room, ROOM - z.avail_out);
    deflateEnd(&z);
    return buf_slice(room);
}

static void add(struct making *m, const char *name, struct slice text)
{
    struct buf room = BUF_INIT(8 << 20);
    struct slice data = m->deflate ? pack(text, &room) : text;
    const char *inner = m->header_name != NULL ? m->header_name : name;
    uint64_t at = m->all.n;
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)text.p, (uInt)text.n) + m->crc_off;
    struct buf *d = &m->directory;
    uint64_t bytes = text.n + (uint64_t)m->bytes_off, packed = data.n + (uint64_t)m->packed_off;
    uint64_t header = at + (uint64_t)m->header_off;

    put(&m->all, 0x04034b50, 4);
    put(&m->all, 20, 2);
    put(&m->all, m->flags, 2);
    put(&m->all, m->deflate ? 8 : 0, 2);
    put(&m->all, 0, 4);
    put(&m->all, crc, 4);
    put(&m->all, data.n, 4);
    put(&m->all, text.n, 4);
    put(&m->all, strlen(inner), 2);
    put(&m->all, m->header_extra, 2);
    buf_str(&m->all, inner);
    for (size_t i = 0; i < m->header_extra; i++) {
        buf_byte(&m->all, 0);
    }
    buf_adds(&m->all, data);

    put(d, 0x02014b50, 4);
    put(d, 20, 2);
    put(d, 20, 2);
    put(d, m->flags, 2);
    put(d, m->deflate ? 8 : 0, 2);
    put(d, 0, 4);
    put(d, crc, 4);
    put(d, m->zip64 ? UINT32_MAX : packed, 4);
    put(d, m->zip64 ? UINT32_MAX : bytes, 4);
    put(d, strlen(name), 2);
    put(d, m->zip64 ? 32 : 0, 2);
    put(d, 0, 2);
    put(d, 0, 2);
    put(d, 0, 2);
    put(d, 0, 4);
    put(d, m->zip64 ? UINT32_MAX : header, 4);
    buf_str(d, name);
    if (m->zip64) { /* behind another one */
        put(d, ANY, 2);
        put(d, 0, 2);
        put(d, 1, 2);
        put(d, 24, 2);
        put(d, bytes, 8);
        put(d, packed, 8);
        put(d, header, 8);
    }
    m->count++;
    buf_free(&room);
}

static void finish(struct making *m)
{
    uint64_t at = m->all.n + (uint64_t)m->directory_off, count = m->count + (uint64_t)m->count_off;
    size_t comment = m->comment != NULL ? strlen(m->comment) : 0;
    uint64_t end64;

    buf_adds(&m->all, buf_slice(&m->directory));
    end64 = m->all.n;
    if (m->zip64) {
        put(&m->all, 0x06064b50, 4);
        put(&m->all, 44, 8);
        put(&m->all, 45, 2);
        put(&m->all, 45, 2);
        put(&m->all, 0, 8);
        put(&m->all, count, 8);
        put(&m->all, count, 8);
        put(&m->all, m->directory.n, 8);
        put(&m->all, at, 8);
        put(&m->all, 0x07064b50, 4);
        put(&m->all, 0, 4);
        put(&m->all, end64, 8);
        put(&m->all, 1, 4);
    }
    put(&m->all, 0x06054b50, 4);
    put(&m->all, 0, 4);
    put(&m->all, m->zip64 ? UINT16_MAX : count, 2);
    put(&m->all, m->zip64 ? UINT16_MAX : count, 2);
    put(&m->all, m->zip64 ? UINT32_MAX : m->directory.n, 4);
    put(&m->all, m->zip64 ? UINT32_MAX : at, 4);
    put(&m->all, comment, 2);
    buf_str(&m->all, m->comment != NULL ? m->comment : "");
}

/* As an upstream gives it: what is wanted alone. Frees it. */
static int read_all(struct making *m, const char *project, struct buf *out, unsigned *asked)
{
    struct wheel w;
    struct err e = {0};
    uint64_t first, end;
    int rc = 0;

    *asked = 0;
    buf_clear(out);
    wheel_begin(&w, slice_str(project), m->all.n);
    while (rc == 0 && wheel_wants(&w, &first, &end)) {
        char *part;
        assert_true(first <= end && end <= m->all.n && ++*asked < 5);
        part = malloc((size_t)(end - first) + 1); /* so that a sanitizer sees its ends */
        memcpy(part, end > first ? m->all.p + first : "", (size_t)(end - first));
        rc = wheel_feed(&w, first, slice_of(part, (size_t)(end - first)), out, &e);
        free(part);
    }
    assert_int_equal(rc, e.code);
    if (rc == 0) { /* and whole */
        size_t n = out->n;
        wheel_begin(&w, slice_str(project), m->all.n);
        assert_int_equal(wheel_feed(&w, 0, buf_slice(&m->all), out, &e), 0);
        assert_int_equal(out->n, 2 * n);
        assert_memory_equal(out->p, out->p + n, n);
        out->n = n;
        assert_false(wheel_wants(&w, &first, &end));
    }
    buf_free(&m->all);
    buf_free(&m->directory);
    return rc;
}

static const struct slice text = {"Metadata-Version: 2.1\nName: Demo.Pkg\nRequires-Dist: a\n", 54};
#define METADATA "Demo_Pkg-1.0.dist-info/METADATA"

static void test_sound(void **state)
{
    struct buf out = BUF_INIT(8 << 20);
    unsigned asked;

    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        struct making m = begin();
        m.deflate = (i & 1) != 0;
        m.zip64 = (i & 2) != 0;
        m.comment = (i & 4) != 0 ? "PK\5\6 but no end" : NULL;
        m.header_extra = (i & 8) != 0 ? 20000 : 28;
        add(&m, "demo_pkg/__init__.py", SLICE("x = 1\n"));
        add(&m, "demo_pkg/_vendor/other-1.dist-info/METADATA", SLICE("Name: other\n"));
        add(&m, METADATA, text);
        if ((i & 16) != 0) { /* far from the end */
            char *big = calloc(1, ROOM);
            bool was = m.deflate;
            m.deflate = false;
            add(&m, "demo_pkg/big", slice_of(big, 300000));
            m.deflate = was;
            free(big);
        }
        add(&m, "Demo_Pkg-1.0.dist-info/RECORD", SLICE(""));
        finish(&m);
        assert_int_equal(read_all(&m, "demo-pkg", &out, &asked), 0);
        assert_true(slice_eq(buf_slice(&out), text));
        assert_int_equal(asked, (i & 16) == 0 ? 1 : (i & 8) != 0 ? 3 : 2);
    }
    buf_free(&out);
}

static void bad(struct making *m, int rc, const char *project)
{
    struct buf out = BUF_INIT(8 << 20);
    unsigned asked;

    finish(m);
    assert_int_equal(read_all(m, project, &out, &asked), rc);
    assert_int_equal(out.n, 0);
    buf_free(&out);
}

static void one(void (*lie)(struct making *m), int rc)
{
    for (int zip64 = 0; zip64 < 2; zip64++) {
        struct making m = begin();
        m.zip64 = zip64 != 0;
        add(&m, "a", SLICE("1"));
        lie(&m);
        add(&m, METADATA, text);
        bad(&m, rc, "demo-pkg");
    }
}

static void lie_header(struct making *m)
{
    m->header_off = -1;
}
static void lie_header_far(struct making *m)
{
    m->header_off = (int64_t)1 << 31;
}
static void lie_header_below(struct making *m)
{
    m->header_off = -(int64_t)m->all.n - 1; /* of 2^64, with zip64 */
}
static void lie_bytes(struct making *m)
{
    m->bytes_off = 1;
}
static void lie_bytes_less(struct making *m)
{
    m->bytes_off = -1;
}
static void lie_bomb(struct making *m)
{
    m->bytes_off = 5 << 20;
}
static void lie_packed(struct making *m)
{
    m->packed_off = 1;
}
static void lie_packed_less(struct making *m)
{
    m->packed_off = -1;
}
static void lie_directory(struct making *m)
{
    m->directory_off = -1;
}
static void lie_directory_front(struct making *m)
{
    buf_str(&m->directory, "junk");
}
static void lie_count(struct making *m)
{
    m->count_off = 1;
}
static void lie_crc(struct making *m)
{
    m->crc_off = 1;
}
static void lie_name(struct making *m)
{
    m->header_name = "a";
}
static void lie_twice(struct making *m)
{
    add(m, METADATA, text);
}
static void lie_two(struct making *m)
{
    add(m, "other-1.dist-info/METADATA", text);
}
static void lie_encrypted(struct making *m)
{
    m->flags = 1;
}
static void lie_end(struct making *m)
{
    m->comment = "PK\5\6................";
}

static void test_lies(void **state)
{
    (void)state;
    one(lie_header, E_INVALID);
    one(lie_header_far, E_INVALID);
    one(lie_header_below, E_INVALID);
    one(lie_bytes, E_INVALID);
    one(lie_bytes_less, E_INVALID);
    one(lie_bomb, E_TOOBIG);
    one(lie_packed, E_INVALID);
    one(lie_packed_less, E_INVALID);
    one(lie_directory, E_INVALID);
    one(lie_directory_front, E_INVALID);
    one(lie_count, E_INVALID);
    one(lie_crc, E_INVALID);
    one(lie_name, E_INVALID);
    one(lie_twice, E_INVALID);
    one(lie_two, E_INVALID);
    one(lie_encrypted, E_UNSUPPORTED);
}

static void test_two_ends(void **state)
{
    struct making m = begin();
    struct buf out = BUF_INIT(8 << 20);
    unsigned asked;

    (void)state;
    add(&m, METADATA, text);
    lie_end(&m);
    finish(&m);
    put(&m.all, 0, 2); /* the comment is an end itself, of no comment */
    m.all.p[m.all.n - 24] = 22;
    assert_int_equal(read_all(&m, "demo-pkg", &out, &asked), E_INVALID);
    buf_free(&out);
}

/* 5 MiB out of 5 KiB, and the directory says less. */
static void test_bomb(void **state)
{
    struct making m = begin();
    char *big = calloc(1, 5 << 20);

    (void)state;
    m.bytes_off = -(int64_t)(5 << 20) + 1000;
    add(&m, METADATA, slice_of(big, 5 << 20));
    free(big);
    bad(&m, E_INVALID, "demo-pkg");
}

static void test_none_and_others(void **state)
{
    struct making m = begin();

    (void)state;
    add(&m, "a/b-1.dist-info/METADATA", text);
    bad(&m, E_INVALID, "demo-pkg");
    m = begin();
    bad(&m, E_INVALID, "demo-pkg");
    m = begin();
    add(&m, METADATA, text);
    bad(&m, E_INVALID, "demo");
    m = begin();
    add(&m, METADATA, text);
    bad(&m, E_INVALID, "demo-pkgs");
}

/* Cut anywhere, nothing is read that is not there. */
static void test_cut(void **state)
{
    struct making whole = begin();

    (void)state;
    whole.zip64 = true;
    add(&whole, METADATA, text);
    finish(&whole);
    for (size_t n = 0; n < whole.all.n; n++) {
        struct making m = begin();
        struct buf out = BUF_INIT(8 << 20);
        unsigned asked;
        buf_add(&m.all, whole.all.p, n);
        assert_int_equal(read_all(&m, "demo-pkg", &out, &asked), E_INVALID);
        buf_free(&out);
    }
    buf_free(&whole.all);
    buf_free(&whole.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),           cmocka_unit_test(test_lies),
        cmocka_unit_test(test_two_ends),        cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_none_and_others), cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
