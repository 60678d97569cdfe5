#include "server/rsync/sender.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <zlib.h>
#include <zstd.h>

enum { MOST = 6 << 20 };

/* The data of one file's tokens, joined; what is behind its end stays in *in. */
static void unwrap(struct slice *in, struct buf *out)
{
    for (;;) {
        unsigned first = (uint8_t)in->p[0];
        size_t n;
        *in = slice_from(*in, 1);
        if (first == 0) {
            return;
        }
        assert_int_equal(first & 0xc0, 0x40);
        n = (first & 0x3f) << 8 | (uint8_t)in->p[0];
        assert_true(n > 0 && n < in->n);
        buf_add(out, in->p + 1, n);
        *in = slice_from(*in, n + 1);
    }
}

static void inflate_as_clients_do(struct slice packed, struct buf *out)
{
    static const uint8_t tail[4] = {0, 0, 0xff, 0xff};
    struct buf all = BUF_INIT(MOST);
    z_stream z = {.next_in = NULL};

    buf_adds(&all, packed);
    buf_add(&all, tail, packed.n > 0 ? sizeof tail : 0);
    assert_int_equal(inflateInit2(&z, -MAX_WBITS), Z_OK);
    z.next_in = (Bytef *)all.p;
    z.avail_in = (uInt)all.n;
    z.next_out = (Bytef *)buf_room(out, MOST - 1);
    z.avail_out = MOST - 1;
    if (packed.n > 0) {
        assert_int_equal(inflate(&z, Z_SYNC_FLUSH), Z_OK);
        assert_int_equal(z.avail_in, 0);
    }
    buf_grew(out, MOST - 1 - z.avail_out);
    inflateEnd(&z);
    buf_free(&all);
}

static void unzstd(ZSTD_DCtx *d, struct slice packed, struct buf *out)
{
    ZSTD_inBuffer in = {packed.p, packed.n, 0};
    ZSTD_outBuffer to = {buf_room(out, MOST - 1), MOST - 1, 0};

    while (in.pos < in.size) {
        assert_false(ZSTD_isError(ZSTD_decompressStream(d, &to, &in)));
    }
    buf_grew(out, to.pos);
}

static void pack(struct literal *l, const char *name, struct slice file, struct buf *to)
{
    literal_begin(l, slice_str(name));
    while (file.n > 0) {
        struct slice piece = slice_first(file, file.n < LITERAL_PIECE ? file.n : LITERAL_PIECE);
        literal_add(l, piece, to);
        file = slice_from(file, piece.n);
    }
    literal_end(l, to);
}

/* Noise, text, noise, in parts of these sizes: every change of mind in one file. */
static void fill(struct buf *b, size_t noise, size_t text)
{
    uint64_t x = 88172645463325252u + noise;

    for (size_t i = 0; i < noise; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        buf_byte(b, (uint8_t)x);
    }
    for (size_t i = 0; i < text; i++) {
        buf_byte(b, (uint8_t) "some words, again and "[i % 22]);
    }
}

static const size_t sizes[][4] = {
    {0, 0, 0, 0},           {1, 0, 0, 0},
    {0, 1, 0, 0},           {0, 256 << 10, 0, 0},
    {256 << 10, 0, 0, 0},   {(256 << 10) + 1, 0, 0, 0},
    {16383, 0, 0, 0},       {32 << 10, 0, 1, 0},
    {300000, 900000, 0, 0}, {2000000, 700000, 900000, 5},
};

static void check(enum literal_kind kind, const char *name)
{
    struct literal l;
    ZSTD_DCtx *d = ZSTD_createDCtx();

    literal_init(&l, kind, SLICE("nothing/t[xw]z"));
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct buf file = BUF_INIT(MOST), wire = BUF_INIT(MOST), packed = BUF_INIT(MOST),
                   got = BUF_INIT(MOST);
        struct slice rest;
        fill(&file, sizes[i][0], sizes[i][1]);
        fill(&file, sizes[i][2], sizes[i][3]);
        pack(&l, name, buf_slice(&file), &wire);
        rest = buf_slice(&wire);
        unwrap(&rest, &packed);
        assert_int_equal(rest.n, 0);
        if (kind == LITERAL_ZSTD) {
            unzstd(d, buf_slice(&packed), &got);
        } else {
            inflate_as_clients_do(buf_slice(&packed), &got);
        }
        assert_int_equal(got.n, file.n);
        assert_true(slice_eq(buf_slice(&got), buf_slice(&file)));
        assert_true(wire.n < file.n + file.n / 300 + 32);
        buf_free(&file);
        buf_free(&wire);
        buf_free(&packed);
        buf_free(&got);
    }
    literal_fini(&l);
    ZSTD_freeDCtx(d);
}

static void what_is_packed_is_unpacked(void **state)
{
    (void)state;
    check(LITERAL_ZSTD, "a/b");
    check(LITERAL_ZLIB, "a/b");
    check(LITERAL_ZLIBX, "a.b/c");
}

static void names_spare_the_work(void **state)
{
    struct buf file = BUF_INIT(MOST), a = BUF_INIT(MOST), b = BUF_INIT(MOST);
    struct literal l;

    (void)state;
    check(LITERAL_ZLIB, "a/b.deb");
    check(LITERAL_ZLIB, "a/b.txz");
    fill(&file, 0, 100000);
    literal_init(&l, LITERAL_ZLIB, SLICE("nothing/t[xw]k/"));
    pack(&l, "x.twk", buf_slice(&file), &a);
    pack(&l, "x.tyk", buf_slice(&file), &b);
    assert_true(a.n > file.n && b.n < file.n / 10);
    literal_fini(&l);
    buf_free(&file);
    buf_free(&a);
    buf_free(&b);
}

static void who_agrees_on_what(void **state)
{
    enum literal_kind k;

    (void)state;
    assert_true(literal_agree(SLICE("lz4 zlibx zstd"), &k) && k == LITERAL_ZLIBX);
    assert_true(literal_agree(SLICE("none"), &k) && k == LITERAL_PLAIN);
    assert_false(literal_agree(SLICE("lz4 brotli"), &k) || literal_agree(SLICE(""), &k));
    assert_true(literal_named(SLICE("zlib"), &k) && k == LITERAL_ZLIB);
    assert_false(literal_named(SLICE("zli"), &k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_is_unpacked),
        cmocka_unit_test(names_spare_the_work),
        cmocka_unit_test(who_agrees_on_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
