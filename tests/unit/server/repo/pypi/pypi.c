#include "tests/harness/ask.h"

#include <stdlib.h>

#include "server/repo/pypi/page.h"

#define V1J "application/vnd.pypi.simple.v1+json"

static struct ask k;

static int setup(void **state)
{
    (void)state;
    ask_open(&k, "pypi", "pypi", "https://pypi.example/");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ask_close(&k);
    return 0;
}

/* --- plans --- */

static void pages(void **state)
{
    static const struct {
        const char *target, *key, *url;
    } row[] = {
        {"/simple/", "simple/", "https://pypi.example/simple/"},
        {"/simple/torch/", "simple/torch/", "https://pypi.example/simple/torch/"},
        {"/simple/torch/?x=1", "simple/torch/", "https://pypi.example/simple/torch/"},
        {"/cu130/torch/", "cu130/torch/", "https://pypi.example/cu130/torch/"},
        {"/cu130/Torch_x/", "cu130/Torch_x/", "https://pypi.example/cu130/Torch_x/"},
        {"/whl/torch_stable.html", "whl/torch_stable.html",
         "https://pypi.example/whl/torch_stable.html"},
        {"/", "", "https://pypi.example/"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(ask(&k, METHOD_GET, row[i].target), 0);
        assert_int_equal(k.plan.kind, PLAN_LOOKUP);
        assert_int_equal(k.plan.delivery, DELIVERY_REWRITTEN);
        assert_slice(k.plan.variant, "text");
        assert_slice(k.plan.lookup.key, row[i].key);
        assert_slice(k.plan.lookup.url, row[i].url);
        assert_int_equal(k.plan.lookup.class, LOOKUP_MUTABLE);
        assert_int_equal(k.plan.lookup.status_map[0].from, 403);
        assert_int_equal(k.plan.lookup.status_map[0].to, 404);
        assert_true(slice_starts(k.plan.lookup.accept, SLICE(V1J ", ")));
    }
    ask_field(&k, "accept", V1J);
    assert_int_equal(ask(&k, METHOD_GET, "/simple/torch/"), 0);
    assert_slice(k.plan.variant, "json");
    ask_field(&k, "accept", "application/json");
    assert_int_equal(ask(&k, METHOD_GET, "/simple/torch/"), 0);
    assert_int_equal(k.plan.status, 406);
}

static void names_have_one_form(void **state)
{
    static const struct {
        const char *target, *location;
    } row[] = {
        {"/simple/Torch/", "../torch/"},
        {"/simple/a__b.-C/?format=x", "../a-b-c/?format=x"},
        {"/simple/torch", "./torch/"},
        {"/simple/Flask_Login", "./flask-login/"},
        {"/simple", "./simple/"},
        {"/cu130/torch", "./torch/"},
        {"/simple/zope.interface", "./zope-interface/"},
        {"/cu130/a%3Ab", "./a:b/"},
        {"", "./pypi/"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(ask(&k, METHOD_GET, row[i].target), 0);
        assert_int_equal(k.plan.kind, PLAN_REPLY);
        assert_int_equal(k.plan.status, 301);
        assert_slice(k.plan.location, row[i].location);
    }
    assert_int_equal(ask(&k, METHOD_GET, "/simple/a%20b/"), 0);
    assert_int_equal(k.plan.status, 404);
    assert_int_equal(ask(&k, METHOD_POST, "/simple/"), 0);
    assert_int_equal(k.plan.status, 405);
}

static void files_by_link_id(void **state)
{
    static const char page[] = "https://files.example\0https://pypi.example/simple/torch/";
    struct result link = {.bytes = slice_of(page, sizeof page - 1)};
    struct result none = {.rc = E_NOTFOUND};
    struct file_results results = {.digest.b = {1, 2, 3}, .size_bytes = 77};
    struct buf row = BUF_INIT(256);
    struct result file;

    (void)state;
    file_row_encode(&results, &row);
    file = (struct result){.bytes = buf_slice(&row)};
    assert_int_equal(ask(&k, METHOD_GET, "/+f/0123456789abcdef/whl/torch-2.9%2bcu130.whl"), 0);
    assert_int_equal(k.plan.kind, PLAN_DEPENDENCY);
    assert_int_equal(k.plan.dependency.table, TABLE_ORIGIN);
    assert_true(slice_eq(k.plan.dependency.key, SLICE("pypi\0"
                                                      "0123456789abcdef")));
    assert_slice(k.plan.subject, "pypi/+f/0123456789abcdef/whl/torch-2.9+cu130.whl");
    assert_int_equal(ask_again(&k, &link), 0);
    assert_int_equal(k.plan.dependency.kind, DEPENDENCY_ROW);
    assert_true(slice_eq(k.plan.dependency.key,
                         SLICE("pypi\0https://files.example\0whl/torch-2.9+cu130.whl\0"
                               "0123456789abcdef")));
    assert_int_equal(ask_again(&k, &file), 0);
    assert_int_equal(k.plan.kind, PLAN_LOOKUP);
    assert_slice(k.plan.lookup.key, "+f/https://files.example/whl/torch-2.9+cu130.whl");
    assert_slice(k.plan.lookup.url, "https://files.example/whl/torch-2.9%2Bcu130.whl");
    assert_slice(k.plan.lookup.via, "https://pypi.example/simple/torch/");
    assert_slice(k.plan.cache_control, "max-age=365000000, immutable, public");
    assert_int_equal(k.plan.lookup.class, LOOKUP_IMMUTABLE);
    assert_true(k.plan.lookup.digest_known);
    assert_int_equal(k.plan.lookup.digest.b[2], 3);
    assert_int_equal(k.plan.lookup.size_bytes, 77);
    assert_int_not_equal(k.plan.delivery, DELIVERY_REWRITTEN);
    ask_forget(&k);
    /* the other spelling is the same object; a page that tells nothing borrows from the others */
    assert_int_equal(ask(&k, METHOD_GET, "/%2Bf/0123456789abcdef/whl/torch-2.9+cu130.whl"), 0);
    assert_int_equal(ask_again(&k, &link), 0);
    assert_int_equal(ask_again(&k, &none), 0);
    assert_int_equal(k.plan.dependency.kind, DEPENDENCY_ROWS);
    assert_true(slice_eq(k.plan.dependency.key,
                         SLICE("pypi\0https://files.example\0whl/torch-2.9+cu130.whl\0")));
    assert_int_equal(ask_again(&k, &file), 0);
    assert_true(k.plan.lookup.digest_known);
    ask_forget(&k);
    assert_int_equal(ask(&k, METHOD_GET, "/+f/0123456789abcdef/whl/torch-2.9+cu130.whl"), 0);
    assert_int_equal(ask_again(&k, &link), 0);
    assert_int_equal(ask_again(&k, &none), 0);
    assert_int_equal(ask_again(&k, &none), 0);
    assert_slice(k.plan.lookup.key, "+f/https://files.example/whl/torch-2.9+cu130.whl");
    assert_false(k.plan.lookup.digest_known);
    assert_int_equal(k.plan.lookup.size_bytes, LENGTH_UNKNOWN);
    ask_forget(&k);
    buf_free(&row);
}

static void what_several_pages_tell(void **state)
{
    struct file_results one = {.digest.b = {1}, .size_bytes = 77};
    struct file_results unsized = {.digest.b = {1}, .size_bytes = LENGTH_UNKNOWN};
    struct file_results other = {.digest.b = {2}, .size_bytes = 77};
    struct file_results out;
    struct buf rows = BUF_INIT(256);

    (void)state;
    assert_false(file_rows_agree(SLICE_NONE, &out));
    assert_false(file_rows_agree(SLICE("an old row"), &out));
    file_row_encode(&one, &rows);
    file_row_encode(&unsized, &rows);
    assert_true(file_rows_agree(buf_slice(&rows), &out));
    assert_int_equal(out.digest.b[0], 1);
    assert_int_equal(out.size_bytes, 77);
    file_row_encode(&other, &rows);
    assert_false(file_rows_agree(buf_slice(&rows), &out));
    buf_free(&rows);
}

static void what_no_page_named_is_absent(void **state)
{
    static const char *const bad[] = {"/+f/short/x.whl", "/+f/0123456789abcdef",
                                      "/+f/0123456789abcdef/", "/+f/"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(ask(&k, METHOD_GET, bad[i]), 0);
        assert_int_equal(k.plan.kind, PLAN_REPLY);
        assert_int_equal(k.plan.status, 404);
    }
    assert_int_equal(ask(&k, METHOD_GET, "/+f/0123456789abcdef/evil.example/x.whl"), 0);
    assert_int_equal(ask_again(&k, &(struct result){.rc = E_NOTFOUND}), 0);
    assert_int_equal(k.plan.status, 404);
    ask_forget(&k);
    assert_int_equal(ask(&k, METHOD_GET, "/+f/0123456789abcdef/../../x.whl"), E_INVALID);
}

static void files_below_the_index(void **state)
{
    (void)state;
    assert_int_equal(ask(&k, METHOD_HEAD, "/whl/cu130/torch-2.9+cu130.whl"), 0);
    assert_int_equal(k.plan.kind, PLAN_LOOKUP);
    assert_slice(k.plan.lookup.url, "https://pypi.example/whl/cu130/torch-2.9%2Bcu130.whl");
    assert_int_equal(k.plan.lookup.class, LOOKUP_IMMUTABLE);
    assert_int_not_equal(k.plan.delivery, DELIVERY_REWRITTEN);
    assert_int_equal(ask(&k, METHOD_GET, "/a/b.whl.metadata"), 0);
    assert_slice(k.plan.content_type, "text/plain; charset=utf-8");
}

/* --- documents --- */

static char *rewrite_as(const char *variant, const char *path, struct slice doc, const char *type,
                        const char *url, int lookup_rc)
{
    struct plan p = {.lookup.key = slice_str(path), .variant = slice_str(variant)};
    struct rewrite_out out = {.body = BUF_INIT(64 << 20)};
    struct err e = {0};
    int rc = k.repo->ops->rewrite(k.repo, &p, doc, slice_str(type), slice_str(url), &out, &e);
    char *text = strdup(buf_cstr(&out.body));

    if (rc != lookup_rc) {
        fail_msg("%d: %s", rc, e.text);
    }
    batch_free(&out.rows);
    buf_free(&out.body);
    return text;
}

static char *rewrite_page(const char *variant, const char *doc)
{
    return rewrite_as(variant, "simple/torch/", slice_str(doc), doc[0] == '{' ? V1J : "text/html",
                      "https://pypi.example/simple/torch/", 0);
}

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("no %s in\n%s", part, text);
    }
}

static void has_not(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        fail_msg("%s in\n%s", part, text);
    }
}

#define H64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
/* ids of links to https://files.example and https://pypi.example on the page simple/torch/ */
static char files_id[LINK_ID + 1];
static char pypi_id[LINK_ID + 1];

static char *fmt(const char *f, const char *id)
{
    struct buf b = BUF_INIT(4096);
    char *s;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    buf_addf(&b, f, id);
#pragma GCC diagnostic pop
    s = strdup(buf_cstr(&b));
    buf_free(&b);
    return s;
}

static void has_id(const char *text, const char *f, const char *id)
{
    char *s = fmt(f, id);

    has(text, s);
    free(s);
}

static const char html_page[] =
    "<!DOCTYPE html><html><head><meta name=\"pypi:repository-version\" content=\"1.1\">"
    "<meta name='pypi:tracks' content='https://other.example/a&amp;b'>"
    "<title><a href=\"x.whl\">no</a></title></head><body>\n"
    "<!-- <a href=\"https://evil.example/x.whl\">x</a> -->\n"
    "<a href=\"https://files.example/p/torch-1.0%2Bcu130-py3.whl#sha256=" H64 "\" "
    "data-requires-python=\"&gt;=3.8,&lt;4\" data-yanked=\"broken &quot;wheel&quot;\" "
    "data-dist-info-metadata=\"sha256=" H64
    "\" data-upload-time=\"2026-01-02T03:04:05Z\" data-later='v&amp;w'>torch</a><br/>\n"
    "<A HREF=../../p/torch-2.0+cpu.tar.gz?sig=a&amp;b=c>torch</A>\n"
    "<a href='/whl/torch-3.zip#md5=00ff'>no sha</a>"
    "<a href='torch-4.zip#egg=torch'>egg</a>"
    "<!--TIMESTAMP 123--></body></html>";

static void html_to_html(void **state)
{
    char *t = rewrite_page("text", html_page);

    (void)state;
    has(t, "<meta name=\"pypi:repository-version\" content=\"1.1\">");
    has(t, "<meta name=\"pypi:tracks\" content=\"https://other.example/a&amp;b\">");
    has_id(t, "<a href=\"../../+f/%s/p/torch-1.0%%2Bcu130-py3.whl#sha256=" H64 "\"", files_id);
    has(t, " data-requires-python=\"&gt;=3.8,&lt;4\" data-yanked=\"broken &quot;wheel&quot;\"");
    has(t, " data-core-metadata=\"sha256=" H64 "\" data-dist-info-metadata=\"sha256=" H64 "\"");
    has(t, " data-upload-time=\"2026-01-02T03:04:05Z\" "
           "data-later=\"v&amp;w\">torch-1.0+cu130-py3.whl</a>");
    has_id(
        t,
        "<a href=\"../../+f/%s/p/torch-2.0%%2Bcpu.tar.gz?sig=a&amp;b=c\">torch-2.0+cpu.tar.gz</a>",
        pypi_id);
    has_id(t, "/%s/whl/torch-3.zip#md5=00ff\">", pypi_id);
    has_id(t, "/%s/simple/torch/torch-4.zip\">", pypi_id);
    has_not(t, "evil");
    has_not(t, "TIMESTAMP");
    has_not(t, "x.whl");
    has_not(t, "://files");
    free(t);
}

static void html_to_json(void **state)
{
    char *t = rewrite_page("json", html_page);

    (void)state;
    has(t, "{\"meta\":{\"api-version\":\"1.0\",\"tracks\":[\"https://other.example/a&b\"]},"
           "\"name\":\"torch\",\"files\":[{");
    has_id(t,
           "{\"filename\":\"torch-1.0+cu130-py3.whl\","
           "\"url\":\"../../+f/%s/p/torch-1.0%%2Bcu130-py3.whl\","
           "\"hashes\":{\"sha256\":\"" H64
           "\"},\"requires-python\":\">=3.8,<4\",\"upload-time\":\"2026-01-02T03:04:05Z\","
           "\"core-metadata\":{\"sha256\":\"" H64 "\"},\"dist-info-metadata\":{\"sha256\":\"" H64
           "\"},"
           "\"yanked\":\"broken \\\"wheel\\\"\"}",
           files_id);
    has(t, "\"hashes\":{\"md5\":\"00ff\"},\"yanked\":false}");
    has(t, "torch-4.zip\",\"hashes\":{},\"yanked\":false}]}");
    free(t);
}

static const char json_page[] =
    "{\"files\":[{\"core-metadata\":{\"sha256\":\"" H64
    "\"},\"data-dist-info-metadata\":false,\"filename\":\"a-1.whl\","
    "\"hashes\":{\"blake2b\":\"11\",\"sha256\":\"" H64
    "\"},\"provenance\":\"https://pypi.example/integrity/a/provenance\","
    "\"requires-python\":\">=3.8\",\"size\":123,\"upload-time\":\"T\","
    "\"url\":\"https://files.example/a/a-1.whl\",\"yanked\":false,"
    "\"new-key\":[1,2.50,{\"x\":null}]},"
    "{\"filename\":\"b\",\"hashes\":{},\"url\":\"javascript:alert(1)\",\"yanked\":true},"
    "{\"filename\":\"c.zip\",\"hashes\":{},\"url\":\"c.zip\",\"yanked\":\"why <b>\"}],"
    "\"meta\":{\"_last-serial\":1e3,\"api-version\":\"1.4\"},\"name\":\"a\","
    "\"project-status\":{\"status\":\"archived\"},\"versions\":[\"1\"]}";

static void json_to_json(void **state)
{
    char *t = rewrite_page("json", json_page);

    (void)state;
    has_id(t,
           "\"size\":123,\"upload-time\":\"T\",\"url\":\"../../+f/%s/a/a-1.whl\",\"yanked\":false,"
           "\"new-key\":[1,2.50,{\"x\":null}]},{\"filename\":\"c.zip\"",
           files_id);
    has_id(t, "\"provenance\":\"../../+f/%s/integrity/a/provenance\"", pypi_id);
    has(t, "\"meta\":{\"_last-serial\":1e3,\"api-version\":\"1.4\"},\"name\":\"a\","
           "\"project-status\":{\"status\":\"archived\"},\"versions\":[\"1\"]}");
    has_not(t, "javascript");
    free(t);
}

static void json_to_html(void **state)
{
    char *t = rewrite_page("html", json_page);

    (void)state;
    has(t, "content=\"1.4\"");
    has(t, "<meta name=\"pypi:project-status\" content=\"archived\">");
    has_id(t,
           "<a href=\"../../+f/%s/a/a-1.whl#sha256=" H64 "\" data-requires-python=\"&gt;=3.8\" "
           "data-core-metadata=\"sha256=" H64 "\" data-dist-info-metadata=\"sha256=" H64
           "\">a-1.whl</a>",
           files_id);
    has(t, " data-yanked=\"why &lt;b&gt;\">c.zip</a>");
    has_not(t, "javascript");
    free(t);
}

static void project_lists(void **state)
{
    static const char html[] =
        "<html><a href='../'>up</a><a href=\"/simple/foo/\">Foo</a><a href='bar/'>bar</a>"
        "<a href='https://other.example/simple/x/'>x</a><a href='/simple/a/b/'>deep</a>"
        "<a href='f.whl'>f</a></html>";
    static const char json[] = "{\"meta\":{\"api-version\":\"1.0\"},\"projects\":["
                               "{\"name\":\"Foo\",\"_last-serial\":7},{\"name\":\"b<r\"}]}";
    char *t;

    (void)state;
    t = rewrite_as("json", "simple/", slice_str(html), "text/html",
                   "https://www.pypi.example/simple/", 0);
    has(t, "\"projects\":[{\"name\":\"Foo\"},{\"name\":\"bar\"}]");
    free(t);
    t = rewrite_as("text", "simple/", slice_str(html), "text/html", "https://pypi.example/simple/",
                   0);
    has(t,
        "<a href=\"../simple/foo/\">Foo</a><br>\n<a href=\"../simple/bar/\">bar</a><br>\n</body>");
    free(t);
    t = rewrite_as("text", "simple/", slice_str(json), V1J, "https://pypi.example/simple/", 0);
    has(t, "<a href=\"./Foo/\">Foo</a><br>\n<a href=\"./b%3Cr/\">b&lt;r</a>");
    free(t);
    t = rewrite_as("json", "simple/", slice_str(json), V1J, "https://pypi.example/simple/", 0);
    assert_string_equal(t, json);
    free(t);
    t = rewrite_as("json", "cu130/", SLICE("<a href=\"torch/\">torch</a>"), "text/html",
                   "https://pypi.example/cu130/", 0);
    has(t, "\"projects\":[{\"name\":\"torch\"}]");
    free(t);
}

static void hostile_links_are_dropped(void **state)
{
    static const char *const bad[] = {
        "javascript:alert(1)",
        "JaVaScRiPt:x",
        "java&#115;cript:x",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://h.example/x.whl",
        "mailto:a@b.example",
        "//user@h.example/x.whl",
        "https://user:pw@h.example/x.whl",
        "https:///x.whl",
        "https://h.example:99999/x.whl",
        "http://h.example/x.whl",
        "https://h.example/a%00b.whl",
        "https://h.example/%zz.whl",
        "https://h.example/a&#10;b.whl",
        "https://h.example/%2e%2e/x.whl",
        "https://h.exa mple/x.whl",
        "https://[::1/x.whl",
        "https://h.example\\@i.example/x.whl",
        "\x01",
        "https://",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct buf doc = BUF_INIT(4096);
        const char *first;
        char *t;

        buf_addf(&doc, "<a href=\"%s\">x</a><a href='good.whl'>y</a>", bad[i]);
        t = rewrite_page("text", buf_cstr(&doc));
        first = strstr(t, "<a ");
        if (first == NULL || strstr(first, "good.whl\">") == NULL ||
            strstr(first + 1, "<a ") != NULL) {
            fail_msg("%s passed:\n%s", bad[i], t);
        }
        free(t);
        buf_free(&doc);
    }
}

static void odd_html(void **state)
{
    static const struct {
        const char *doc;
        const char *has; /* NULL: no anchor at all */
    } row[] = {
        {"<base href=\"https://files.example/b/\">"
         "<base href='https://no.example/'><a href='x.whl'>x</a>",
         "/b/x.whl\""},
        {"<a href=\"//files.example/y.whl\">y</a>", "/y.whl\""},
        {"<a href=x.whl>x", "/simple/torch/x.whl\""},
        {"<a  HREF = 'x.whl' href='z.whl'>x</a>", "/simple/torch/x.whl\""},
        {"<a/href=x.whl/>x</a>", "/simple/torch/x.whl/"},
        {"<a href=\"a&amp;b&lt;&#x41;&#66;&unknown;.whl\">x</a>",
         "/a&amp;b%3CAB&amp;unknown;.whl\""},
        {"<a href='x.whl' data-requires-python='\"><script>'>x</a>",
         "data-requires-python=\"&quot;&gt;&lt;script&gt;\""},
        {"<a href='x.whl' data-x\"y='1' data-ok=2>x</a>", "whl\" data-ok=\"2\">"},
        {"<a href='\xc3\xa9.whl'>x</a>", "/%C3%A9.whl\">\xc3\xa9.whl<"},
        {"<a href=' x.whl '>x</a>", "/x.whl\""},
        {"<a href='x.whl'><a href='y.whl'>", "y.whl\""},
        {"<!DOCTYPE x><?php ?></ ><a href='x.whl'>x</a>", "/x.whl\""},
        {"<!--><a href='x.whl'>x</a>", "/x.whl\""},
        {"<script>'<a href=\"x.whl\">'</script >", NULL},
        {"<style><a href='x.whl'></style", NULL},
        {"<!-- <a href='x.whl'>", NULL},
        {"<a>x</a><a href>y</a>", NULL},
        {"<", NULL},
        {"<a", NULL},
        {"<a href", NULL},
        {"<a href='x.whl", "x.whl"},
        {"< a href='x.whl'>", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char *t = rewrite_page("text", row[i].doc);

        if (row[i].has == NULL) {
            has_not(t, "<a ");
        } else {
            has(t, row[i].has);
        }
        free(t);
    }
}

static void broken_documents(void **state)
{
    static const struct {
        const char *doc, *type;
        int rc;
    } row[] = {
        {"{\"files\":[", V1J, E_PROTOCOL},
        {"{} {}", V1J, E_PROTOCOL},
        {"[]", V1J, E_PROTOCOL},
        {"[{\"files\":[]}]", V1J, E_PROTOCOL},
        {"\"x\"", V1J, E_PROTOCOL},
        {"7", V1J, E_PROTOCOL},
        {"", V1J, E_PROTOCOL},
        {"{\"a\":\"\xff\"}", V1J, E_PROTOCOL},
        {"{\"a\":nul}", V1J, E_PROTOCOL},
        {"{\"meta\":{\"api-version\":\"2.0\"}}", V1J, E_UNSUPPORTED},
        {"<meta name=pypi:repository-version content=2.0>", "text/html", E_UNSUPPORTED},
        {"PK\x03\x04", "application/zip", E_UNSUPPORTED},
        {"", "", E_UNSUPPORTED},
        {"{\"files\":7,\"meta\":[[]]}", V1J, 0},
        {"{\"files\":[[],{},7,{\"url\":{}},{\"url\":7}]}", V1J, 0},
        {"  {\"files\":[]}", "application/octet-stream", 0},
        {"\n<a>", "application/octet-stream", 0},
    };
    static const char *const variant[] = {"json", "html", "text"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        for (size_t v = 0; v < ARRAY_LEN(variant); v++) {
            free(rewrite_as(variant[v], "simple/torch/", slice_str(row[i].doc), row[i].type,
                            "https://pypi.example/simple/torch/", row[i].rc));
        }
    }
}

static void depth_and_nul(void **state)
{
    struct buf deep = BUF_INIT(1 << 20);
    static const char nul[] = "<a href='x\0y.whl'>n\0</a><a href='z.whl'>\0</a>";
    static const char nul_json[] =
        "{\"files\":[{\"url\":\"a\\u0000b.whl\"},{\"url\":\"z.whl\",\"x\\u0000\":\"\\u0000\"}]}";
    char *t;

    (void)state;
    buf_str(&deep, "{\"a\":");
    for (int i = 0; i < 100000; i++) {
        buf_byte(&deep, '[');
    }
    free(rewrite_as("json", "simple/torch/", buf_slice(&deep), V1J,
                    "https://pypi.example/simple/torch/", E_TOOBIG));
    free(rewrite_as("html", "simple/torch/", buf_slice(&deep), V1J,
                    "https://pypi.example/simple/torch/", E_PROTOCOL));
    buf_free(&deep);
    t = rewrite_as("text", "simple/torch/", slice_of(nul, sizeof nul - 1), "text/html",
                   "https://pypi.example/simple/torch/", 0);
    has(t, "z.whl\">");
    has_not(t, "y.whl");
    free(t);
    t = rewrite_as("json", "simple/torch/", slice_of(nul_json, sizeof nul_json - 1), V1J,
                   "https://pypi.example/simple/torch/", 0);
    has(t, "{\"files\":[{\"url\":\"../../+f/");
    has(t, "\"x\\u0000\":\"\\u0000\"}]}");
    has_not(t, "b.whl");
    free(t);
}

/* Wrong nesting without end, ten megabytes: time must not grow with its square. */
static void ten_megabytes(void **state)
{
    static const char *const unit[] = {"<div></p>",
                                       "<a href=x.whl>",
                                       "<!--",
                                       "<title>",
                                       "<a b='",
                                       "&#",
                                       "<a href=\"&amp;&amp;&amp;\">"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(unit); i++) {
        struct buf doc = BUF_INIT(16 << 20);
        size_t n = strlen(unit[i]);

        while (doc.n < (i == 1 || i == 6 ? (size_t)1 << 20 : (size_t)10 << 20)) {
            buf_add(&doc, unit[i], n);
        }
        free(rewrite_as("text", "simple/torch/", buf_slice(&doc), "text/html",
                        "https://pypi.example/simple/torch/", 0));
        buf_free(&doc);
    }
}

static void pages_of_redirected_indexes(void **state)
{
    struct repo_conf conf = {.name = "drop",
                             .protocol = "pypi",
                             .origin.url = "https://pypi.example/whl/",
                             .unknown_host = "drop",
                             .source = "t:1"};
    struct repo *r;
    struct plan p = {.lookup.key = SLICE("cu130/torch/"), .variant = SLICE("text")};
    struct rewrite_out out = {.body = BUF_INIT(1 << 20)};

    (void)state;
    assert_int_equal(repo_open(&conf, &r, NULL), 0);
    assert_int_equal(
        r->ops->rewrite(
            r, &p,
            SLICE("<a href='/whl/cu130/a.whl'>a</a><a href='https://files.example/b.whl'>b</a>"),
            SLICE("text/html; charset=utf-8"), SLICE("https://pypi.example/whl/cu130/torch/"), &out,
            NULL),
        0);
    has(buf_cstr(&out.body), "/whl/cu130/a.whl\">a.whl");
    has_not(buf_cstr(&out.body), "b.whl");
    batch_free(&out.rows);
    buf_free(&out.body);
    repo_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages),
        cmocka_unit_test(names_have_one_form),
        cmocka_unit_test(files_by_link_id),
        cmocka_unit_test(what_several_pages_tell),
        cmocka_unit_test(what_no_page_named_is_absent),
        cmocka_unit_test(files_below_the_index),
        cmocka_unit_test(html_to_html),
        cmocka_unit_test(html_to_json),
        cmocka_unit_test(json_to_json),
        cmocka_unit_test(json_to_html),
        cmocka_unit_test(project_lists),
        cmocka_unit_test(hostile_links_are_dropped),
        cmocka_unit_test(odd_html),
        cmocka_unit_test(broken_documents),
        cmocka_unit_test(depth_and_nul),
        cmocka_unit_test(ten_megabytes),
        cmocka_unit_test(pages_of_redirected_indexes),
    };

    link_id(SLICE("https://files.example"), SLICE("simple/torch/"), files_id);
    link_id(SLICE("https://pypi.example"), SLICE("simple/torch/"), pypi_id);
    return cmocka_run_group_tests(tests, setup, teardown);
}
