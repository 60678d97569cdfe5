#include "server/repo/folder.h"

#include "tests/harness/store.h"

/* A tree "me/x" of these paths; its head. */
static struct snap publish(struct fixture *f, const char *const *paths, size_t count)
{
    struct tree_edit *ed = mem_array(count, sizeof *ed);
    struct batch *b = batch_new();
    struct digest empty;
    struct digest root;
    struct snap sn;
    uint64_t entries;
    uint64_t bytes;

    for (size_t i = 0; i < count; i++) {
        ed[i].entry = (struct entry){.path = slice_str(paths[i]),
                                     .type = ENTRY_FILE,
                                     .size_bytes = i,
                                     .mtime_ns = i == 1 ? 1795398216000000000 : 0};
    }
    tree_empty_root(&empty);
    assert_int_equal(tree_edit(f->s, &empty, ed, count, b, &root, &entries, &bytes, NULL), 0);
    assert_int_equal(head_publish(f->s, SLICE("models"), SLICE("me/x"), &root, entries, bytes, NULL,
                                  true, 1800000000, b, &sn, NULL),
                     0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    free(ed);
    return sn;
}

static int list(struct fixture *f, struct plan *p, struct buf *out)
{
    const struct repo r = {.name = "models"};
    struct listing_out to = {.body = out};
    struct err e = {0};
    int rc;

    buf_clear(out);
    p->kind = PLAN_LIST;
    rc = folder_list(&r, p, f->s, NULL, &to, &e);
    assert_int_equal(slice_starts(to.content_type, SLICE("text/html")), p->html);
    return rc;
}

/* The values of "path" or of links, each followed by a blank. */
static const char *names(struct buf *out, const char *mark, struct buf *to)
{
    const char *at = buf_cstr(out);

    buf_clear(to);
    while ((at = strstr(at, mark)) != NULL) {
        at += strlen(mark);
        buf_add(to, at, (size_t)(strchr(at, '"') - at));
        buf_byte(to, ' ');
    }
    return buf_cstr(to);
}

static const char *const paths[] = {"a",     "a-b/x",        "a.d/e/f", "a.d/e/g",
                                    "a.d/h", "b/\xff\xff/x", "b/c",     "z&<\">.txt"};

static void folders(void **state)
{
    struct fixture *f = *state;
    struct plan p = {.snap = publish(f, paths, ARRAY_LEN(paths)), .name = SLICE("me/x")};
    struct buf out = BUF_INIT(1 << 20);
    struct buf got = BUF_INIT(1 << 20);

    p.entry.path = SLICE("");
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "{\"path\":\"", &got), "a a-b/ a.d/ b/ z&<\\ ");
    assert_non_null(strstr(buf_cstr(&out), "\"version\":\"v1\",\"entries\":["));
    p.entry.path = SLICE("a.d/");
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "{\"path\":\"", &got), "e/ h ");
    p.recursive = true;
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "{\"path\":\"", &got), "e/f e/g h ");
    p.recursive = false;
    p.entry.path = SLICE("b/");
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "{\"path\":\"", &got), "c \xef\xbf\xbd\xef\xbf\xbd/ ");
    p.entry.path = SLICE("none/");
    assert_int_equal(list(f, &p, &out), E_NOTFOUND);
    p.entry.path = SLICE("a.");
    assert_int_equal(list(f, &p, &out), E_NOTFOUND);
    buf_free(&out);
    buf_free(&got);
}

static void pages(void **state)
{
    struct fixture *f = *state;
    struct plan p = {
        .snap = publish(f, paths, ARRAY_LEN(paths)), .name = SLICE("me/x"), .html = true};
    struct buf out = BUF_INIT(1 << 20);
    struct buf got = BUF_INIT(1 << 20);

    p.entry.path = SLICE("");
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "<a href=\"", &got), "a a-b/ a.d/ b/ z%26%3C%22%3E.txt ");
    assert_non_null(strstr(buf_cstr(&out), ">z&#38;&#60;&#34;&#62;.txt</a>"));
    assert_non_null(strstr(buf_cstr(&out), ">a</a></td><td></td><td title=\"0\">0 B</td>"));
    assert_non_null(strstr(buf_cstr(&out), ">a-b/</a></td><td></td><td></td>"));
    assert_non_null(strstr(buf_cstr(&out), "<p id=\"state\">v1, published 2027-01-15 08:00 UTC, "));
    p.entry.path = SLICE("b/");
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "<a href=\"", &got), "c %FF%FF/ ");
    p.entry.path = SLICE("a-b/");
    assert_int_equal(list(f, &p, &out), 0);
    assert_non_null(
        strstr(buf_cstr(&out), ">x</a></td><td>2026-11-23 01:43</td><td title=\"1\">1 B</td>"));
    buf_free(&out);
    buf_free(&got);
}

/* What a reader's eye, or a client's, could take for something else. */
static void odd_names(void **state)
{
    static const char *const odd[] = {"a:b/c",     "http.py", "https:/x", "it's",
                                      "q?x#y%20+", " blank",  "\xff",     "\xe2\x80\xaetxt"};
    struct fixture *f = *state;
    struct plan p = {.snap = publish(f, odd, ARRAY_LEN(odd)), .name = SLICE("me/x"), .html = true};
    struct buf out = BUF_INIT(1 << 20);
    struct buf got = BUF_INIT(1 << 20);

    p.entry.path = SLICE("");
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "<a href=\"", &got),
                        "%20blank a%3Ab/ %68ttp.py %68ttps%3A/ it%27s q%3Fx%23y%2520%2B "
                        "%E2%80%AEtxt %FF ");
    assert_non_null(strstr(buf_cstr(&out), ">it&#39;s</a>"));
    assert_non_null(strstr(buf_cstr(&out), ">\xef\xbf\xbdtxt</a>"));
    buf_free(&out);
    buf_free(&got);
}

/* The way up: not quoted, and no link to the page itself. */
static void breadcrumbs(void **state)
{
    struct fixture *f = *state;
    struct plan p = {
        .snap = publish(f, paths, ARRAY_LEN(paths)), .name = SLICE("me/x"), .html = true};
    struct buf out = BUF_INIT(1 << 20);

    p.entry.path = SLICE("a.d/e/");
    p.text = SLICE("me/x@a%2F<b>/a.d/e/");
    assert_int_equal(list(f, &p, &out), 0);
    assert_non_null(strstr(
        buf_cstr(&out),
        "<h1><a href=/ >mirrord</a> / <a href=/models/ ><bdi>models</bdi></a> / "
        "<a href=/models/me/ ><bdi>me</bdi></a> / "
        "<a href=/models/me/x%40a%2F%3Cb%3E/ ><bdi>x@a/&#60;b&#62;</bdi></a>"
        " / <a href=/models/me/x%40a%2F%3Cb%3E/a.d/ ><bdi>a.d</bdi></a> / <bdi>e</bdi></h1>"));
    p.entry.path = p.text = SLICE("");
    assert_int_equal(list(f, &p, &out), 0);
    assert_non_null(strstr(buf_cstr(&out), "<h1><a href=/ >mirrord</a> / <bdi>models</bdi></h1>"));
    buf_free(&out);
}

static void trees(void **state)
{
    struct fixture *f = *state;
    struct plan p = {.entry.path = SLICE("")};
    struct buf out = BUF_INIT(1 << 20);
    struct buf got = BUF_INIT(1 << 20);

    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(buf_cstr(&out), "{\"trees\":[]}\n");
    publish(f, paths, 1);
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "{\"name\":\"", &got), "me/x ");
    p.entry.path = SLICE("you/");
    assert_int_equal(list(f, &p, &out), E_NOTFOUND);
    p.entry.path = SLICE("me/");
    p.html = true;
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "<a href=\"", &got), "x/ ");
    assert_non_null(strstr(buf_cstr(&out), "<td>v1, 1 file</td>"));
    p.entry.path = SLICE(""); /* one level at a time */
    assert_int_equal(list(f, &p, &out), 0);
    assert_string_equal(names(&out, "<a href=\"", &got), "me/ ");
    assert_non_null(strstr(buf_cstr(&out), "<td>1 repository</td>"));
    buf_free(&out);
    buf_free(&got);
}

static void more_than_fits(void **state)
{
    struct fixture *f = *state;
    struct plan p = {.snap = publish(f, paths, ARRAY_LEN(paths)), .name = SLICE("me/x")};
    struct buf out = BUF_INIT(150);

    p.entry.path = SLICE("");
    assert_int_equal(list(f, &p, &out), E_TOOBIG);
    buf_free(&out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(folders),     TEST(pages), TEST(odd_names),
                                       TEST(breadcrumbs), TEST(trees), TEST(more_than_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
