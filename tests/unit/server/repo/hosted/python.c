#include "server/repo/hosted/python.h"

#include <stdlib.h>

#include <openssl/err.h>
#include <openssl/evp.h>

#include "tests/harness/ask.h"
#include "tests/harness/store.h"

enum { NOW = 1800000000 };

static struct ask k;

static int setup(void **state)
{
    (void)state;
    ask_open(&k, "models", "hosted", NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ask_close(&k);
    return 0;
}

static void replies(void **state)
{
    static const struct {
        enum method method;
        const char *target;
        int status;
        const char *location;
    } row[] = {
        {METHOD_GET, "/simple", 301, "./simple/"},
        {METHOD_GET, "/simple/Demo.Pkg/", 301, "../demo-pkg/"},
        {METHOD_GET, "/simple/Demo_Pkg?format=x", 301, "./demo-pkg/?format=x"},
        {METHOD_GET, "/simple/A@v1/a-1.zip", 301, "../a@v1/a-1.zip"},
        {METHOD_GET, "/simple/A/a-1%2Bl.zip", 301, "../a/a-1%2Bl.zip"},
        {METHOD_GET, "/simple/-a/", 404, NULL},
        {METHOD_GET, "/simple/a@/", 404, NULL},
        {METHOD_GET, "/simple/a/b/c", 404, NULL},
        {METHOD_GET, "/simple/a/%2Fc", 404, NULL},
        {METHOD_POST, "/simple", 405, NULL},
        {METHOD_POST, "/simple/", 405, NULL},
        {METHOD_PUT, "/simple/a/a-1.zip", 405, NULL},
        {METHOD_PUT, "/simple/a/x.yanked", 405, NULL},
        {METHOD_PUT, "/simple/a@v1/a-1.zip.yanked", 405, NULL},
        {METHOD_DELETE, "/simple/a/a-1.zip.about", 405, NULL},
        {METHOD_DELETE, "/simple/a", 405, NULL},
        {METHOD_DELETE, "/simple/A/", 404, NULL},
        {METHOD_POST, "/simple/a/-/uploads", 404, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(ask(&k, row[i].method, row[i].target), 0);
        if (k.plan.kind != PLAN_REPLY || k.plan.status != row[i].status) {
            fail_msg("%s: kind %d, status %d", row[i].target, k.plan.kind, k.plan.status);
        }
        if (row[i].location != NULL) {
            assert_slice(k.plan.location, row[i].location);
        }
    }
}

static void pages(void **state)
{
    (void)state;
    assert_int_equal(ask(&k, METHOD_GET, "/simple/"), 0);
    assert_int_equal(k.plan.kind, PLAN_LIST);
    assert_int_equal(k.plan.form, LIST_PYTHON_PROJECTS);
    assert_slice(k.plan.text, "text");
    assert_slice(k.plan.subject, "models/simple/");
    ask_field(&k, "accept", "application/vnd.pypi.simple.v1+json, text/html; q=0.01");
    assert_int_equal(ask(&k, METHOD_GET, "/simple/"), 0);
    assert_slice(k.plan.text, "json");
    ask_field(&k, "accept", "image/png");
    assert_int_equal(ask(&k, METHOD_GET, "/simple/"), 0);
    assert_int_equal(k.plan.status, 406);
    assert_int_equal(ask(&k, METHOD_GET, "/simple/demo@v3/"), 0);
    assert_int_equal(k.plan.dependency.kind, DEPENDENCY_HEAD);
    assert_slice(k.plan.dependency.name, "simple/demo");
    assert_slice(k.plan.dependency.version, "v3");
    assert_int_equal(ask_again(&k, &(struct result){.snap = {.seq = 3}}), 0);
    assert_int_equal(k.plan.form, LIST_PYTHON_PROJECT);
    assert_slice(k.plan.name, "simple/demo");
    ask_forget(&k);
    /* A tree as any other, for who asks for it so. */
    ask_field(&k, "accept", "application/json");
    assert_int_equal(ask(&k, METHOD_GET, "/simple/demo/"), 0);
    assert_slice(k.plan.dependency.name, "simple/demo");
    assert_int_equal(ask(&k, METHOD_GET, "/simple/demo/?recursive=1"), 0);
    assert_int_equal(ask_again(&k, &(struct result){.snap = {.seq = 3}}), 0);
    assert_int_equal(k.plan.form, LIST_HOSTED_FOLDER);
    ask_forget(&k);
}

static void files(void **state)
{
    struct result entry = {.entry = {.type = ENTRY_FILE, .size_bytes = 5}};

    (void)state;
    assert_int_equal(ask(&k, METHOD_GET, "/simple/a/a-1%2Bl.zip"), 0);
    assert_slice(k.plan.subject, "models/simple/a/a-1+l.zip");
    assert_int_equal(ask_again(&k, &(struct result){.snap = {.seq = 3}}), 0);
    assert_slice(k.plan.dependency.path, "a-1+l.zip");
    assert_int_equal(ask_again(&k, &entry), 0);
    assert_int_equal(k.plan.kind, PLAN_BLOB);
    assert_slice(k.plan.cache_control, "max-age=365000000, immutable, public");
    assert_slice(k.plan.content_type, "application/octet-stream");
    ask_forget(&k);
}

static void changes(void **state)
{
    (void)state;
    assert_int_equal(ask(&k, METHOD_DELETE, "/simple/a/a-1.zip"), 0);
    assert_int_equal(k.plan.kind, PLAN_PUT);
    assert_int_equal(k.plan.right, RIGHT_PUBLISH);
    assert_slice(k.plan.subject, "models/simple/a/a-1.zip");
    assert_int_equal(k.plan.put.kind, PUT_DELETE);
    assert_true(k.plan.put.beside);
    assert_int_equal(ask(&k, METHOD_DELETE, "/simple/a/"), 0);
    assert_int_equal(k.plan.put.path.n, 0);
    assert_false(k.plan.put.beside);
    assert_int_equal(ask(&k, METHOD_DELETE, "/simple/a/a-1.zip.yanked"), 0);
    assert_false(k.plan.put.beside);
    assert_int_equal(ask(&k, METHOD_PUT, "/simple/a/a-1.zip.yanked"), 0);
    assert_int_equal(k.plan.right, RIGHT_PUBLISH); /* before anything is looked at */
    assert_int_equal(ask_again(&k, &(struct result){.snap = {.seq = 3}}), 0);
    assert_slice(k.plan.dependency.path, "a-1.zip");
    assert_int_equal(ask_again(&k, &(struct result){.entry = {.type = ENTRY_FILE}}), 0);
    assert_int_equal(k.plan.put.kind, PUT_FILE);
    assert_slice(k.plan.put.path, "a-1.zip.yanked");
    assert_int_equal(k.plan.put.max_bytes, PYTHON_WHY_MAX);
    ask_forget(&k);
    /* Nobody's token: told before a byte of the form. */
    assert_int_equal(ask(&k, METHOD_POST, "/legacy/"), 0);
    assert_int_equal(k.plan.kind, PLAN_PUT);
    assert_int_equal(k.plan.right, RIGHT_TOKEN);
}

/* --- the form --------------------------------------------------------------------------------- */

struct asked {
    char subject[200];
    bool yes;
    unsigned times;
};

static bool may(const void *arg, struct slice subject)
{
    struct asked *a = (struct asked *)(uintptr_t)arg;

    snprintf(a->subject, sizeof a->subject, SLICE_FMT, SLICE_ARG(subject));
    a->times++;
    return a->yes;
}

/* Its status; the words are in *why, when there are any. */
static int bring(struct fixture *fix, struct slice body, size_t piece, struct asked *a,
                 char why[400], uint64_t *took)
{
    const struct plan p = {.text = SLICE("xyz"), .put = {.kind = PUT_FORM}};
    const struct put put = {.kind = PUT_FORM, .repo = SLICE("models")};
    const struct put_sight sight = {may, a};
    struct uploads *u = uploads_open(fix->s);
    struct form_upload *to = form_upload_open(u, &put);
    void *form = python_form_reader.open(k.repo, &p, &sight);
    struct upload_reply out = {.body = BUF_INIT(1 << 16)};
    int rc = 0;

    while (rc == 0 && out.status == 0 && body.n != 0) {
        size_t n = body.n < piece ? body.n : piece;
        rc = python_form_reader.read(form, slice_first(body, n), to, &out, NULL);
        body = slice_from(body, n);
    }
    if (rc == 0 && out.status == 0) {
        rc = python_form_reader.finish(form, NOW, to, &out, NULL);
    }
    assert_int_equal(rc, 0);
    *took = form_upload_bytes(to);
    snprintf(why, 400, SLICE_FMT, SLICE_ARG(buf_slice(&out.body)));
    python_form_reader.close(form);
    form_upload_close(&to);
    upload_reply_free(&out);
    uploads_close(&u);
    return out.status;
}

#define PART(name, value)                                                                          \
    "--xyz\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"
#define FILE_(name, value)                                                                         \
    "--xyz\r\nContent-Disposition: form-data; name=\"content\"; filename=\"" name                  \
    "\"\r\n\r\n" value "\r\n"
#define ACTION PART(":action", "file_upload")
#define WORDS  PART("name", "Demo_Pkg") PART("version", "1.0") PART("filetype", "sdist")
#define END    "--xyz--\r\n"

static void forms(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *words; /* NULL: none */
    } row[] = {
        {ACTION WORDS FILE_("demo_pkg-1.0.tar.gz", "\x1f\x8bxx") END, 201, NULL},
        {FILE_("demo_pkg-1.0.tar.gz", "\x1f\x8bxx") WORDS ACTION END, 200, NULL},
        {ACTION WORDS FILE_("demo_pkg-1.0.tar.gz", "\x1f\x8byy") END, 409, "File already exists"},
        {ACTION WORDS FILE_("demo_pkg-1.0.0.zip", "PKxx") END, 201, NULL}, /* the same version */
        {ACTION WORDS FILE_("demo_pkg-1.1.zip", "PKxx") END, 400, "another version"},
        {ACTION WORDS FILE_("demo_pkg-1.0.zip", "\x1f\x8b") END, 400, "not a gzip or zip file"},
        {ACTION WORDS FILE_("demo_pkg-1.0.zip", "P") END, 400, "not a gzip or zip file"},
        {ACTION WORDS FILE_("demo_pkg-1.0.zip", "") END, 400, "empty"},
        {ACTION WORDS WORDS FILE_("demo_pkg-1.0.zip", "PK") END, 400, "more than once"},
        {ACTION WORDS FILE_("demo_pkg-1.0.zip", "PK") FILE_("demo_pkg-1.0.zip", "PK") END, 400,
         "more than once"},
        {ACTION WORDS PART("requires_python", ">=3") PART("attestations", "[]")
             FILE_("demo_pkg-1.0.zip", "PK") PART("attestations", "[]") END,
         201, NULL},
        {ACTION WORDS PART("requires_python", "three") FILE_("demo_pkg-1.0.tar.gz", "\x1f\x8bzz")
             END,
         400, "Requires-Python"},
        {ACTION WORDS PART("md5_digest", "00") FILE_("demo_pkg-1.0.zip", "PK") END, 400,
         "md5_digest"},
        {ACTION WORDS, 400, "ends before"},
        {ACTION WORDS END, 400, "no file"},
        {"", 400, "ends before"},
        {END, 400, "invalid name"},
    };
    struct fixture *fix;
    struct asked a = {.yes = true};
    char why[400];
    uint64_t took;

    fixture_setup(state);
    fix = *state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct slice body = slice_str(row[i].body);
        size_t pieces[] = {1, 7, body.n + 1};
        for (size_t at = 0; at < (row[i].words != NULL ? ARRAY_LEN(pieces) : 1); at++) {
            int status = bring(fix, body, pieces[at], &a, why, &took);
            if (status != row[i].status ||
                (row[i].words != NULL && strstr(why, row[i].words) == NULL)) {
                fail_msg("row %zu, pieces of %zu: %d, %s", i, pieces[at], status, why);
            }
        }
    }
    assert_int_equal(fixture_teardown(state), 0);
}

/* Who may not bring it, does not: in whatever order the form comes. */
static void rights(void **state)
{
    static const char *const body[] = {
        ACTION WORDS FILE_("demo_pkg-1.0.zip", "PK") END,
        FILE_("demo_pkg-1.0.zip", "PK") ACTION WORDS END,
        FILE_("Demo.PKG-1.0-py3-none-any.whl", "PK") ACTION WORDS END,
    };
    struct fixture *fix;
    char why[400];
    uint64_t took;

    fixture_setup(state);
    fix = *state;
    for (size_t i = 0; i < ARRAY_LEN(body); i++) {
        struct asked a = {.yes = false};
        assert_int_equal(bring(fix, slice_str(body[i]), 3, &a, why, &took), 403);
        assert_string_equal(a.subject, "models/simple/demo-pkg/");
        assert_int_equal(a.times, 1);
        assert_int_equal(took, 0);
        assert_non_null(strstr(why, "publish:models/simple/demo-pkg/*"));
    }
    assert_int_equal(fixture_teardown(state), 0);
}

#define SHA256_PK "fcab7fcc2b4cffd9bb45003bfc2e468a04ef6f77ca8200a7341f027631584d25"

/* A library in FIPS mode has no MD5: what else a form says is enough, and that alone is not. */
static void forms_without_md5(void **state)
{
    static const struct {
        const char *body;
        int status;
        const char *words;
    } row[] = {
        {ACTION WORDS PART("md5_digest", "00") FILE_("demo_pkg-1.0.zip", "PK") END, 400,
         "MD5 is disabled here"},
        {ACTION WORDS PART("md5_digest", "00") PART("sha256_digest", "00")
             FILE_("demo_pkg-1.0.zip", "PK") END,
         400, "sha256_digest; send"},
        {ACTION WORDS PART("md5_digest", "00") PART("sha256_digest", SHA256_PK)
             FILE_("demo_pkg-1.0.zip", "PK") END,
         201, NULL},
        {ACTION WORDS PART("md5_digest", "") FILE_("demo_pkg-1.0.tar.gz", "\x1f\x8bxx") END, 201,
         NULL},
    };
    struct fixture *fix;
    struct asked a = {.yes = true};
    char why[400];
    uint64_t took;

    fixture_setup(state);
    fix = *state;
    assert_int_equal(EVP_set_default_properties(NULL, "fips=yes"), 1);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        int status = bring(fix, slice_str(row[i].body), 7, &a, why, &took);
        if (status != row[i].status ||
            (row[i].words != NULL && strstr(why, row[i].words) == NULL)) {
            fail_msg("row %zu: %d, %s", i, status, why);
        }
        /* a queue with an error in it would end the thread's next TLS connection */
        assert_int_equal(ERR_peek_error(), 0);
    }
    assert_int_equal(EVP_set_default_properties(NULL, ""), 1);
    assert_int_equal(fixture_teardown(state), 0);
}

int main(void)
{
#define ONE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {ONE(replies),          ONE(pages), ONE(files),
                                       ONE(changes),          ONE(forms), ONE(rights),
                                       ONE(forms_without_md5)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
