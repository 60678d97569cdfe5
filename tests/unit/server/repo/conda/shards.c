#include "tests/harness/ask.h"

#include "common/codec/msgpack.h"
#include "server/repo/conda/shards.h"

static struct buf doc = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20), reported = BUF_INIT(1 << 20);

static void text(const char *s)
{
    mp_put_str(&doc, slice_str(s));
}

static void byte(uint8_t b)
{
    buf_byte(&doc, b);
}

static int tell(void *arg, const struct shard_file *f, struct err *e)
{
    (void)arg;
    (void)e;
    buf_addf(&reported, SLICE_FMT " %lld %d:%02x\n", SLICE_ARG(f->name), (long long)f->size_bytes,
             f->digest_known, f->digest.b[0]);
    return 0;
}

static void a_shard(void **state)
{
    char sha[DIGEST_BYTES + 1] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    (void)state;
    byte(0x83);
    text("packages");
    byte(0x82);
    text("a-1-0.tar.bz2");
    byte(0x83);
    text("sha256");
    byte(0xc4);
    byte(32);
    buf_add(&doc, sha, 32);
    text("depends");
    byte(0x91);
    text("b");
    text("size");
    byte(7);
    text("../a"); /* no file has such a name */
    byte(0x80);
    text("removed");
    byte(0x90);
    text("packages.conda");
    byte(0x83);
    text("b-1-0.conda");
    byte(0x81);
    text("sha256");
    text("4242424242424242424242424242424242424242424242424242424242424242");
    text("c-1-0.conda");
    byte(0x82);
    text("sha256");
    text("no digest");
    text("size");
    byte(0xff);
    text("d-1-0.conda");
    byte(0x80);
    assert_int_equal(shard_read(buf_slice(&doc), tell, NULL, NULL), 0);
    assert_string_equal(buf_cstr(&reported), "a-1-0.tar.bz2 7 1:41\nb-1-0.conda -1 1:42\n"
                                             "c-1-0.conda -1 0:00\nd-1-0.conda -1 0:00\n");
    for (size_t n = 0; n < doc.n; n++) {
        assert_int_equal(shard_read(slice_first(buf_slice(&doc), n), tell, NULL, NULL), E_INVALID);
    }
    byte(0);
    assert_int_equal(shard_read(buf_slice(&doc), tell, NULL, NULL), E_INVALID);
}

static void list(const char *base, const char *shards)
{
    buf_clear(&doc);
    buf_clear(&out);
    byte(0x83);
    text("version");
    byte(1);
    text("info");
    byte((uint8_t)(0x81 + (base != NULL) + (shards != NULL)));
    if (base != NULL) {
        text("base_url");
        text(base);
    }
    text("subdir");
    text("noarch");
    if (shards != NULL) {
        text("shards_base_url");
        text(shards);
    }
    text("shards");
    byte(0x81);
    text("x");
    byte(0x01);
}

static void a_list_leads_here(void **state)
{
    struct shards_places was;

    (void)state;
    list("https://far.example/pkgs/and/a/long/one/behind/it", "https://far.example/s");
    assert_int_equal(shards_rewrite(buf_slice(&doc), &was, &out, NULL), 0);
    assert_slice(was.packages, "https://far.example/pkgs/and/a/long/one/behind/it");
    assert_slice(was.shards, "https://far.example/s");
    list("./", "./shards/"); /* what must have come of it */
    {
        struct buf got = BUF_INIT(1 << 20);
        list("https://far.example/pkgs/and/a/long/one/behind/it", "https://far.example/s");
        assert_int_equal(shards_rewrite(buf_slice(&doc), &was, &got, NULL), 0);
        list("./", "./shards/");
        assert_true(slice_eq(buf_slice(&got), buf_slice(&doc)));
        buf_free(&got);
    }
    list(NULL, NULL);
    assert_int_equal(shards_rewrite(buf_slice(&doc), &was, &out, NULL), 0);
    assert_null(was.packages.p);
    assert_true(slice_eq(buf_slice(&out), buf_slice(&doc)));
    for (size_t n = 0; n < doc.n; n++) {
        assert_int_equal(shards_rewrite(slice_first(buf_slice(&doc), n), &was, &out, NULL),
                         E_INVALID);
    }
}

/* Whoever reads the last of two keys finds ours as whoever reads the first. */
static void twice_the_same(void **state)
{
    struct shards_places was;

    (void)state;
    buf_clear(&doc);
    buf_clear(&out);
    byte(0x83);
    for (int i = 0; i < 2; i++) {
        text("info");
        byte(0x81);
        text("base_url");
        text("https://far.example/");
    }
    text("shards");
    byte(0x80);
    assert_int_equal(shards_rewrite(buf_slice(&doc), &was, &out, NULL), 0);
    assert_null(memmem(out.p, out.n, "far", 3));
    buf_clear(&doc);
    byte(0x82);
    text("info");
    byte(0x8a);
    for (int i = 0; i < 10; i++) {
        text("base_url");
        text("x");
    }
    text("shards");
    byte(0x80);
    assert_int_equal(shards_rewrite(buf_slice(&doc), &was, &out, NULL), E_INVALID);
    buf_clear(&doc);
    byte(0x82);
    text("info");
    byte(0x81);
    text("base_url");
    byte(0x01);
    text("shards");
    byte(0x80);
    assert_int_equal(shards_rewrite(buf_slice(&doc), &was, &out, NULL), E_INVALID);
}

static void folders(void **state)
{
    (void)state;
    assert_slice(shards_folder(SLICE("a/noarch/shards/"), CONDA_SHARD), "a/noarch/");
    assert_slice(shards_folder(SLICE("shards/"), CONDA_SHARD), "");
    assert_slice(shards_folder(SLICE("a/myshards/"), CONDA_SHARD), "a/myshards/");
    assert_slice(shards_folder(SLICE("a/shards/"), CONDA_PACKAGE), "a/shards/");
}

static int fini(void **state)
{
    (void)state;
    buf_free(&doc);
    buf_free(&out);
    buf_free(&reported);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard),
        cmocka_unit_test(a_list_leads_here),
        cmocka_unit_test(twice_the_same),
        cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, NULL, fini);
}
