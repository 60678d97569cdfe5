#include "agent/pull/artifact.h"

#include <signal.h>
#include <sys/stat.h>

#include "tests/harness/pulled.h"

/* --- folders ---------------------------------------------------------------------------------- */

struct folder {
    const char *listing; /* the document, with the digest of "abc" for its %s */
    const char *etag;
    unsigned listed;
    unsigned unchanged; /* 304 */
};

static void answer(void *arg, struct slice request, struct buf *out)
{
    struct folder *f = arg;
    struct buf doc = BUF_INIT(1 << 16);
    char hex[DIGEST_HEX + 1];
    struct digest d;

    if (memmem(request.p, request.n, "?recursive=1 ", 13) ==
        NULL) { /* a HEAD of the file that it is not */
        buf_str(out, "HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    f->listed++;
    if (f->etag != NULL && memmem(request.p, request.n, f->etag, strlen(f->etag)) != NULL) {
        f->unchanged++;
        buf_str(out, "HTTP/1.1 304 As it was\r\nConnection: close\r\n\r\n");
        return;
    }
    digest_of(SLICE("abc"), &d);
    digest_format(&d, hex);
    for (const char *p = f->listing; *p != '\0'; p++) {
        if (*p == '$') {
            buf_str(&doc, hex);
        } else {
            buf_byte(&doc, (uint8_t)*p);
        }
    }
    buf_str(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n");
    if (f->etag != NULL) {
        buf_addf(out, "ETag: %s\r\n", f->etag);
    }
    buf_addf(out, "Content-Length: %zu\r\n\r\n", doc.n);
    buf_adds(out, buf_slice(&doc));
    buf_free(&doc);
}

#define ENTRY(name) "{\"path\":\"" name "\",\"size\":3,\"sha256\":\"$\"}"

static void put_abc(struct scene *s)
{
    struct digest d;

    local_cache_put(s->world, SLICE("abc"), &d);
}

static void test_a_folder(void **state)
{
    struct scene *s = *state;
    struct folder f = {
        "{\"entries\":[{\"path\":\"a\",\"sha256\":null}," ENTRY("a/b") "," ENTRY("c") "]}",
        "\"one\"", 0, 0};
    char path[PATH_MAX];
    struct stat st;

    put_abc(s);
    assert_int_equal(scene_pull(s, "m/x", answer, &f), 0); /* no file: a folder, then */
    assert_true(s->artifact.is_folder);
    assert_int_equal(s->artifact.nfiles, 2);
    assert_int_equal(s->artifact.size_bytes, 6);
    snprintf(path, sizeof path, "%s/out", s->world->dir);
    assert_int_equal(artifact_place(&s->agent, &s->artifact, path, &s->why), 0);
    snprintf(path, sizeof path, "%s/out/a/b", s->world->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3);
}

static void test_a_folder_that_has_not_changed(void **state)
{
    struct scene *s = *state;
    struct folder f = {"{\"entries\":[" ENTRY("a") "]}", "\"one\"", 0, 0};

    put_abc(s);
    assert_int_equal(scene_pull(s, "m/x/", answer, &f), 0);
    assert_int_equal(f.unchanged, 0);
    assert_int_equal(scene_pull(s, "m/x/", answer, &f), 0);
    assert_int_equal(f.listed, 2);
    assert_int_equal(f.unchanged,
                     1); /* the ETag was shown, and the files are those of the last time */
    assert_int_equal(s->artifact.nfiles, 1);
}

static void test_listings_that_are_none(void **state)
{
    static const struct {
        int rc;
        const char *doc;
    } all[] = {
        {E_PROTOCOL, ""},
        {E_PROTOCOL, "<html>"},
        {E_PROTOCOL, "{}"},
        {E_PROTOCOL, "{\"entries\":[{\"path\":\"a\"}]}"},
        {E_PROTOCOL, "{\"entries\":[{\"path\":\"a\",\"size\":-3,\"sha256\":\"$\"}]}"},
        {E_PROTOCOL, "{\"root\":\"x\",\"entries\":[" ENTRY("a") "]}"},
        {E_INVALID, "{\"entries\":[" ENTRY("../a") "]}"},
        {E_INVALID, "{\"entries\":[" ENTRY("/a") "]}"},
        {E_NOTFOUND, "{\"entries\":[]}"},
    };
    struct scene *s = *state;

    put_abc(s);
    s->agent.tries = 1;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct folder f = {all[i].doc, NULL, 0, 0};
        if (scene_pull(s, "m/x/", answer, &f) != all[i].rc) {
            fail_msg("%s: %s", all[i].doc, s->why.text);
        }
    }
}

/* --- patterns, keys, what needs nobody -------------------------------------------------------- */

static void test_patterns(void **state)
{
    static const char *const in[] = {"*.json", "weights/*"};
    static const char *const out[] = {"*.tmp.json"};
    const struct artifact a = {.include = in, .ninclude = 2, .exclude = out, .nexclude = 1};
    const struct artifact all = {.from = "x"};

    (void)state;
    assert_true(artifact_wants(&all, "anything"));
    assert_true(artifact_wants(&a, "config.json"));
    assert_true(artifact_wants(&a, "weights/1.bin"));
    assert_false(artifact_wants(&a, "readme.md"));
    assert_false(artifact_wants(&a, "x.tmp.json"));
}

static void test_keys(void **state)
{
    struct artifact_file f[2] = {{.name = SLICE("a")}, {.name = SLICE("b")}};
    struct artifact a = {.is_folder = true, .file = f, .nfiles = 2};
    struct digest one, two;

    (void)state;
    digest_of(SLICE("1"), &f[0].digest);
    digest_of(SLICE("2"), &f[1].digest);
    artifact_key(&a, &one);
    f[1].name = SLICE("c"); /* another name is another folder */
    artifact_key(&a, &two);
    assert_false(digest_eq(&one, &two));
    a.is_folder = false; /* a file is its digest, whatever it is called */
    artifact_key(&a, &one);
    assert_true(digest_eq(&one, &f[0].digest));
}

static void test_at_hand(void **state)
{
    struct scene *s = *state;
    struct artifact a = {.from = "m/a.bin"};
    struct artifact b = {.from = "m/a.bin"};

    put_abc(s);
    assert_false(artifact_at_hand(&s->agent, &a)); /* it may have changed */
    digest_of(SLICE("abc"), &b.digest);
    assert_true(artifact_at_hand(&s->agent, &b));
    assert_int_equal(b.size_bytes, 3);
    artifact_fini(&a);
    artifact_fini(&b);
}

int main(void)
{
#define SCENE(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)
    const struct CMUnitTest tests[] = {
        SCENE(test_a_folder),
        SCENE(test_a_folder_that_has_not_changed),
        SCENE(test_listings_that_are_none),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_keys),
        SCENE(test_at_hand),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
