#include "tests/harness/ask.h"

#include <stdio.h>

static struct ask k;
static const char root_hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

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

/* A GET whose head is v7; with a file of 5 bytes at its path, or none. */
static void get(const char *target, bool file)
{
    struct result head = {.snap = {.seq = 7}};
    struct result entry = {.rc = file ? 0 : E_NOTFOUND,
                           .entry = {.type = ENTRY_FILE, .size_bytes = 5}};

    assert_true(digest_parse(slice_str(root_hex), &head.snap.root));
    ask_forget(&k);
    assert_int_equal(ask(&k, METHOD_GET, target), 0);
    if (k.plan.kind == PLAN_DEPENDENCY) {
        assert_int_equal(k.plan.dependency.kind, DEPENDENCY_HEAD);
        assert_int_equal(ask_again(&k, &head), 0);
    }
    if (k.plan.kind == PLAN_DEPENDENCY) {
        assert_int_equal(k.plan.dependency.kind, DEPENDENCY_ENTRY);
        assert_true(digest_eq(&k.plan.dependency.root, &head.snap.root));
        assert_int_equal(ask_again(&k, &entry), 0);
    }
    ask_forget(&k);
}

static void files(void **state)
{
    (void)state;
    get("/me/gpt/config.json", true);
    assert_int_equal(k.plan.kind, PLAN_BLOB);
    assert_slice(k.plan.subject, "models/me/gpt/config.json");
    assert_slice(k.plan.name, "me/gpt");
    assert_slice(k.plan.content_type, "application/json");
    assert_slice(k.plan.cache_control, "no-cache");
    get("/me/gpt@v7/a/x.html", true);
    assert_slice(k.plan.subject, "models/me/gpt/a/x.html");
    assert_slice(k.plan.content_type, "application/octet-stream");
    assert_slice(k.plan.cache_control, "public, max-age=31536000, immutable");
    get("/me/gpt%40best/x", true);
    assert_slice(k.plan.cache_control, "no-cache");
    assert_int_equal(ask(&k, METHOD_GET, "/me/gpt@best/x"), 0);
    assert_slice(k.plan.dependency.name, "me/gpt");
    assert_slice(k.plan.dependency.version, "best");
}

static void folders(void **state)
{
    (void)state;
    get("/me/gpt/", false);
    assert_int_equal(k.plan.kind, PLAN_LIST);
    assert_slice(k.plan.entry.path, "");
    assert_true(k.plan.html && !k.plan.recursive);
    ask_field(&k, "accept", "text/html,application/xhtml+xml;q=0.9");
    assert_int_equal(ask(&k, METHOD_GET, "/"), 0);
    assert_int_equal(k.plan.kind, PLAN_LIST);
    assert_true(k.plan.html);
    assert_null(k.plan.name.p);
    get("/me/gpt/sub/?recursive=1", false);
    assert_slice(k.plan.entry.path, "sub/");
    assert_true(k.plan.recursive);
    get("/me/gpt/c:d/sub", false); /* not a file: maybe a folder without its slash */
    assert_int_equal(k.plan.kind, PLAN_LIST);
    assert_slice(k.plan.location, "./sub/");
    get("/me/gpt/c:d?x=1", false);
    assert_slice(k.plan.location, "./c:d/?x=1");
    get("/me/gpt/sub/", false);
    assert_null(k.plan.location.p);
    get("/me/", false);
    assert_int_equal(k.plan.kind, PLAN_LIST);
    assert_slice(k.plan.entry.path, "me/");
}

/* Who asks by name for JSON gets it, and all others a page; recursive=1 is a script's. */
static void forms(void **state)
{
    static const struct {
        const char *accept, *query;
        bool html;
    } row[] = {
        {NULL, "", true},
        {"*/*", "", true},
        {"application/*", "", true},
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "", true},
        {"application/json", "", false},
        {"application/json, */*;q=0.5", "", false}, /* mirrord's own crawl of folders */
        {"Application/JSON, text/javascript, */*; q=0.01", "", false},
        {"application/json, text/html;q=0.9", "", false},
        {"application/json;q=0.5, text/html", "", true},
        {"application/json;q=0", "", true},
        {"application/jsonl", "", true},
        {NULL, "?format=json", false},
        {"text/html", "?x=1&format=json", false},
        {"application/json", "?format=html", true},
        {NULL, "?recursive=1", false},
        {"*/*", "?recursive=1", false},
        {"application/json", "?recursive=1", false}, /* trainagent */
        {"text/html", "?recursive=1", true},
        {NULL, "?recursive=1&format=html", true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char target[64];
        snprintf(target, sizeof target, "/%s", row[i].query);
        if (row[i].accept != NULL) {
            ask_field(&k, "accept", row[i].accept);
        }
        assert_int_equal(ask(&k, METHOD_GET, target), 0);
        assert_int_equal(k.plan.kind, PLAN_LIST);
        if (k.plan.html != row[i].html) {
            fail_msg("Accept: %s of /%s", row[i].accept, row[i].query);
        }
        ask_forget(&k);
    }
}

static void redirects_and_refusals(void **state)
{
    static const struct {
        enum method method;
        const char *target;
        int status;
        const char *location;
    } row[] = {
        {METHOD_GET, "/me", 301, "./me/"},
        {METHOD_GET, "/me/gpt", 301, "./gpt/"},
        {METHOD_GET, "/me/gpt@v3", 301, "./gpt@v3/"},
        {METHOD_GET, "/.me/gpt/x", 404, NULL},
        {METHOD_GET, "/me/-x/y", 404, NULL},
        {METHOD_GET, "/me/g%2Fpt/y", 404, NULL},
        {METHOD_GET, "/me//y", 404, NULL},
        {METHOD_GET, "/me/gpt@/y", 404, NULL},
        {METHOD_PUT, "/me", 405, NULL},
        {METHOD_POST, "/me/gpt/x", 405, NULL},
        {METHOD_PUT, "/me/gpt@v3/x", 405, NULL},
        {METHOD_DELETE, "/me/gpt@v3/x", 405, NULL},
        {METHOD_PUT, "/me/gpt/", 400, NULL},
        {METHOD_PUT, "/me/gpt/a//b", 400, NULL},
        {METHOD_PUT, "/me/gpt/-/x", 400, NULL},
        {METHOD_DELETE, "/me/gpt", 400, NULL},
        {METHOD_GET, "/me/gpt/-/uploads/zz", 404, NULL},
        {METHOD_PATCH, "/me/gpt/-/uploads/00112233445566778899aabbccddeeff/x", 405, NULL},
        {METHOD_PUT, "/me/gpt/-/uploads/00112233445566778899aabbccddeeff/a//b", 400, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(ask(&k, row[i].method, row[i].target), 0);
        assert_int_equal(k.plan.kind, PLAN_REPLY);
        assert_int_equal(k.plan.status, row[i].status);
        if (row[i].location != NULL) {
            assert_slice(k.plan.location, row[i].location);
        }
    }
    get("/me/gpt/x", false);
    ask_forget(&k);
    assert_int_equal(ask(&k, METHOD_GET, "/me/none/x"), 0);
    assert_int_equal(ask_again(&k, &(struct result){.rc = E_NOTFOUND}), 0);
    assert_int_equal(k.plan.dependency.table, TABLE_MOVED);
    assert_int_equal(ask_again(&k, &(struct result){.rc = E_NOTFOUND}), 0);
    assert_int_equal(k.plan.status, 404);
    ask_forget(&k);
}

/* A tree that has another name now: links with the old one lead on. */
static void moved_trees(void **state)
{
    static const struct {
        const char *target, *location;
    } row[] = {
        {"/me/old/a%20b/c?x=1", "/models/you/new/a%20b/c?x=1"},
        {"/me/old@feature%2Fx/a", "/models/you/new@feature%2Fx/a"},
        {"/me/old/", "/models/you/new/"},
        {"/me/old/resolve/main/a%20b", "/models/you/new/resolve/main/a%20b"},
        {"/api/models/me/old/tree/feature%2Fx/sub%2Fdir?recursive=true",
         "/models/api/models/you/new/tree/feature%2Fx/sub%2Fdir?recursive=true"},
    };
    const struct result none = {.rc = E_NOTFOUND};
    const struct result moved = {.bytes = SLICE("you/new")};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        ask_forget(&k);
        assert_int_equal(ask(&k, METHOD_GET, row[i].target), 0);
        assert_int_equal(ask_again(&k, &none), 0);
        assert_int_equal(k.plan.dependency.table, TABLE_MOVED);
        assert_int_equal(ask_again(&k, &moved), 0);
        assert_int_equal(k.plan.kind, PLAN_REPLY);
        assert_int_equal(k.plan.status, 307);
        assert_slice(k.plan.location, row[i].location);
    }
    ask_forget(&k);
}

static void kinds_and_branches(void **state)
{
    static const struct {
        enum method method;
        const char *target, *tree, *branch, *path;
    } row[] = {
        {METHOD_PUT, "/datasets/me/d/a/b", "datasets/me/d", "", "a/b"},
        {METHOD_PUT, "/spaces/me/s/app.py", "spaces/me/s", "", "app.py"},
        {METHOD_PUT, "/datasets/d@dev/a", "datasets/d", "dev", "a"}, /* an owner from before */
        {METHOD_PUT, "/me/gpt@feature%2Fx/a", "me/gpt", "feature/x", "a"},
        {METHOD_PUT, "/me/gpt@100%25/a", "me/gpt", "100%", "a"},
        {METHOD_DELETE, "/datasets/me/d@dev/a", "datasets/me/d", "dev", "a"},
        {METHOD_PUT, "/me/gpt@main/a", "me/gpt", "", "a"},
        {METHOD_POST, "/me/gpt@dev/-/uploads", "me/gpt", "dev", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(ask(&k, row[i].method, row[i].target), 0);
        assert_int_equal(k.plan.kind, PLAN_PUT);
        assert_int_equal(k.plan.right, RIGHT_PUBLISH);
        assert_slice(k.plan.put.name, row[i].tree);
        assert_slice(k.plan.put.branch, row[i].branch);
        assert_slice(k.plan.put.path, row[i].path);
    }
    assert_int_equal(ask(&k, METHOD_PUT, "/datasets/me/d/a"), 0);
    assert_slice(k.plan.subject, "models/datasets/me/d/a");
    assert_int_equal(ask(&k, METHOD_GET, "/datasets/me"), 0);
    assert_slice(k.plan.location, "./me/");
    assert_int_equal(ask(&k, METHOD_GET, "/datasets/me/d"), 0);
    assert_slice(k.plan.location, "./d/");
    assert_int_equal(ask(&k, METHOD_GET, "/datasets/me/"), 0);
    assert_int_equal(k.plan.kind, PLAN_LIST);
    assert_slice(k.plan.entry.path, "datasets/me/");
}

#define ID "00112233445566778899aabbccddeeff"

static void puts_of_every_kind(void **state)
{
    static const struct {
        enum method method;
        const char *target;
        enum put_kind kind;
        const char *path;
    } row[] = {
        {METHOD_PUT, "/me/gpt/a/b.bin", PUT_FILE, "a/b.bin"},
        {METHOD_DELETE, "/me/gpt/a/b.bin", PUT_DELETE, "a/b.bin"},
        {METHOD_DELETE, "/me/gpt/a/", PUT_DELETE, "a/"},
        {METHOD_DELETE, "/me/gpt/", PUT_DELETE, ""},
        {METHOD_POST, "/me/gpt/-/uploads", PUT_UPLOAD_OPEN, ""},
        {METHOD_POST, "/me/gpt/-/uploads/", PUT_UPLOAD_OPEN, ""},
        {METHOD_GET, "/me/gpt/-/uploads/" ID, PUT_UPLOAD_STATUS, ""},
        {METHOD_HEAD, "/me/gpt/-/uploads/" ID "/a/b", PUT_UPLOAD_STATUS, "a/b"},
        {METHOD_PUT, "/me/gpt/-/uploads/" ID "/a/b", PUT_UPLOAD_FILE, "a/b"},
        {METHOD_PUT, "/me/gpt/-/uploads/" ID "/commit", PUT_UPLOAD_FILE, "commit"},
        {METHOD_POST, "/me/gpt/-/uploads/" ID "/commit", PUT_UPLOAD_COMMIT, ""},
        {METHOD_DELETE, "/me/gpt/-/uploads/" ID, PUT_UPLOAD_ABORT, ""},
        {METHOD_DELETE, "/me/gpt/-/uploads/" ID "/", PUT_UPLOAD_ABORT, ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(ask(&k, row[i].method, row[i].target), 0);
        assert_int_equal(k.plan.kind, PLAN_PUT);
        assert_int_equal(k.plan.right, RIGHT_PUBLISH);
        assert_int_equal(k.plan.put.kind, row[i].kind);
        assert_slice(k.plan.put.path, row[i].path);
        assert_slice(k.plan.put.repo, "models");
        assert_slice(k.plan.put.name, "me/gpt");
        assert_true(slice_starts(k.plan.subject, SLICE("models/me/gpt/")));
        if (row[i].kind == PUT_UPLOAD_OPEN) {
            assert_slice(k.plan.put.location, "/models/me/gpt/-/uploads");
        } else if (k.plan.put.upload_id.p != NULL) {
            assert_slice(k.plan.put.upload_id, ID);
        }
    }
}

static void conditions(void **state)
{
    char quoted[80];

    (void)state;
    snprintf(quoted, sizeof quoted, "\"%s\"", root_hex);
    ask_field(&k, "if-match", quoted);
    assert_int_equal(ask(&k, METHOD_POST, "/me/gpt/-/uploads/" ID "/commit?replace=1"), 0);
    assert_true(k.plan.put.match == MATCH_ROOT && k.plan.put.replace);
    snprintf(quoted, sizeof quoted, "\"sha256-%s\"", root_hex);
    ask_field(&k, "if-match", quoted);
    assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/x"), 0);
    assert_int_equal(k.plan.put.match, MATCH_FILE);
    ask_field(&k, "if-none-match", "*");
    assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/x"), 0);
    assert_true(k.plan.put.if_none_match_any);
    ask_field(&k, "if-match", "*");
    assert_int_equal(ask(&k, METHOD_DELETE, "/me/gpt/x"), 0);
    assert_int_equal(k.plan.put.match, MATCH_ANY);
    ask_field(&k, "if-match", "W/\"x\"");
    assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/x"), 0);
    assert_int_equal(k.plan.status, 412);
    ask_field(&k, "if-none-match", "\"x\"");
    assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/x"), 0);
    assert_int_equal(k.plan.status, 400);
}

static void bodies(void **state)
{
    static const char *const bad[] = {"bytes 0-9/*",
                                      "bytes 5-4/10",
                                      "bytes 0-10/10",
                                      "bytes 0-8/10",
                                      "items 0-9/10",
                                      "bytes */10",
                                      "bytes 0-18446744073709551615/18446744073709551615"};
    (void)state;
    k.req.content_length = 10;
    ask_field(&k, "content-range", "bytes 90-99/100");
    ask_field(&k, "repr-digest", "sha-256=:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=:");
    assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/-/uploads/" ID "/x"), 0);
    assert_int_equal(k.plan.kind, PLAN_PUT);
    assert_int_equal(k.plan.put.first, 90);
    assert_int_equal(k.plan.put.total, 100);
    assert_true(k.plan.put.digest_known);
    assert_int_equal(k.plan.put.digest.b[31], 31);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ask_field(&k, "content-range", bad[i]);
        assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/-/uploads/" ID "/x"), 0);
        assert_int_equal(k.plan.status, 400);
    }
    ask_field(&k, "content-range", "bytes 0-9/10");
    assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/x"), 0);
    assert_int_equal(k.plan.status, 400);
    ask_field(&k, "content-encoding", "gzip");
    assert_int_equal(ask(&k, METHOD_PUT, "/me/gpt/x"), 0);
    assert_int_equal(k.plan.status, 415);
    k.req.content_length = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(folders),
        cmocka_unit_test(forms),
        cmocka_unit_test(conditions),
        cmocka_unit_test(redirects_and_refusals),
        cmocka_unit_test(moved_trees),
        cmocka_unit_test(kinds_and_branches),
        cmocka_unit_test(bodies),
        cmocka_unit_test(puts_of_every_kind),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
