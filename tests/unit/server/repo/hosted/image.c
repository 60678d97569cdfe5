#include "server/repo/hosted/image.h"

#include <stdio.h>

#include "tests/harness/ask.h"

#define HEX  "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define D256 "sha256:" HEX
#define ID   "0123456789abcdef0123456789abcdef"

static struct ask k;
static struct principal who;

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

/* target: "/v2/models/..." or, as a listener's root has it, "/v2/...". */
static void plan(enum method method, const char *target)
{
    struct slice rest = slice_str(target);

    k.req.method = method;
    k.req.target = rest;
    k.req.path = slice_cut(&rest, '?');
    k.req.query = k.req.path.n == k.req.target.n ? SLICE_NONE : rest;
    k.req.fields = k.field;
    k.req.arena = &k.arena;
    k.plan = (struct plan){0};
    rest = slice_from(k.req.path, 4);
    rest = slice_starts(rest, SLICE("models/")) ? slice_from(rest, 7) : rest;
    assert_int_equal(
        k.repo->ops->plan(k.repo, &k.req, rest, &who, &k.results, &k.arena, &k.plan, &k.why), 0);
    k.req.nfields = 0;
}

static void learn(struct result f)
{
    assert_int_equal(k.plan.kind, PLAN_DEPENDENCY);
    f.dependency = k.plan.dependency;
    k.results.result[k.results.count++] = f;
}

static void assert_no(int status, const char *code)
{
    assert_int_equal(k.plan.kind, PLAN_REPLY);
    assert_int_equal(k.plan.status, status);
    if (memmem(k.plan.text.p, k.plan.text.n, code, strlen(code)) == NULL) {
        fail_msg(SLICE_FMT " lacks %s", SLICE_ARG(k.plan.text), code);
    }
}

static void assert_put(enum put_kind kind)
{
    assert_int_equal(k.plan.kind, PLAN_PUT);
    assert_int_equal(k.plan.put.kind, kind);
    assert_int_equal(k.plan.right, RIGHT_PUBLISH);
    assert_slice(k.plan.subject, "models/me/img/");
    assert_slice(k.plan.put.name, "oci:me/img");
}

static void uploads(void **state)
{
    (void)state;
    plan(METHOD_POST, "/v2/models/me/img/blobs/uploads/");
    assert_put(PUT_APPEND_OPEN);
    assert_slice(k.plan.put.location, "/v2/models/me/img/blobs/uploads");
    assert_int_equal(k.plan.put.called.by, CALLED_NOT);
    plan(METHOD_POST, "/v2/me/img/blobs/uploads/?digest=" D256);
    assert_put(PUT_APPEND);
    assert_int_equal(k.plan.put.upload_id.n, 0);
    assert_int_equal(k.plan.put.called.by, CALLED_SHA256);
    assert_slice(k.plan.location, "/v2/me/img");
    plan(METHOD_POST, "/v2/models/me/img/blobs/uploads/?digest=sha256%3A" HEX);
    assert_int_equal(k.plan.put.called.by, CALLED_SHA256);
    plan(METHOD_POST, "/v2/models/me/img/blobs/uploads/?digest=sha512:" HEX HEX);
    assert_int_equal(k.plan.put.called.by, CALLED_SHA512);
    plan(METHOD_POST, "/v2/models/me/img/blobs/uploads/?digest=md5:00");
    assert_no(400, "DIGEST_INVALID");
    plan(METHOD_GET, "/v2/models/me/img/blobs/uploads/" ID);
    assert_put(PUT_APPEND_STATUS);
    plan(METHOD_DELETE, "/v2/models/me/img/blobs/uploads/" ID);
    assert_put(PUT_APPEND_DROP);
    plan(METHOD_PUT, "/v2/models/me/img/blobs/uploads/" ID "?digest=" D256);
    assert_put(PUT_APPEND);
    assert_slice(k.plan.put.upload_id, ID);
    assert_true(k.plan.put.first == UINT64_MAX);
    plan(METHOD_PUT, "/v2/models/me/img/blobs/uploads/" ID);
    assert_no(400, "DIGEST_INVALID");
    plan(METHOD_PATCH, "/v2/models/me/img/blobs/uploads/short");
    assert_no(404, "BLOB_UPLOAD_UNKNOWN");
}

static void ranges(void **state)
{
    static const struct {
        const char *value;
        uint64_t length, first; /* UINT64_MAX: refused */
    } cases[] = {
        {"0-9", 10, 0},
        {"10-19", 10, 10},
        {"10-10", 1, 10},
        {"10-19", LENGTH_UNKNOWN, 10},
        {"bytes 10-19", 10, 10},
        {"10-19/*", 10, 10},
        {"0-18446744073709551614", LENGTH_UNKNOWN, 0},
        {"10-19", 9, UINT64_MAX},
        {"19-10", 10, UINT64_MAX},
        {"", 0, UINT64_MAX},
        {"-", 1, UINT64_MAX},
        {"10-", 10, UINT64_MAX},
        {"-10", 10, UINT64_MAX},
        {"a-b", 10, UINT64_MAX},
        {"0-99999999999999999999999", LENGTH_UNKNOWN, UINT64_MAX},
        {"18446744073709551615-18446744073709551615", LENGTH_UNKNOWN, UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ask_field(&k, "content-range", cases[i].value);
        k.req.has_body = true;
        k.req.content_length = cases[i].length;
        plan(METHOD_PATCH, "/v2/models/me/img/blobs/uploads/" ID);
        if (cases[i].first == UINT64_MAX) {
            assert_no(400, "SIZE_INVALID");
        } else {
            assert_put(PUT_APPEND);
            assert_true(k.plan.put.first == cases[i].first);
        }
    }
    ask_field(&k, "content-encoding", "gzip");
    plan(METHOD_PATCH, "/v2/models/me/img/blobs/uploads/" ID);
    assert_no(405, "UNSUPPORTED");
}

static void mounts(void **state)
{
    static const char *const none[] = {"", "&from=other/me/base", "&from=models/..",
                                       "&from=models/"};

    (void)state;
    plan(METHOD_POST, "/v2/models/me/img/blobs/uploads/?mount=" D256 "&from=models/me/base");
    assert_put(PUT_APPEND_OPEN);
    assert_int_equal(k.plan.put.called.by, CALLED_SHA256);
    assert_slice(k.plan.put.to, "oci:me/base");
    plan(METHOD_POST, "/v2/me/img/blobs/uploads/?mount=" D256 "&from=me/base");
    assert_slice(k.plan.put.to, "oci:me/base");
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        char target[256];
        snprintf(target, sizeof target, "/v2/models/me/img/blobs/uploads/?mount=" D256 "%s",
                 none[i]);
        plan(METHOD_POST, target);
        assert_put(PUT_APPEND_OPEN);
        assert_null(k.plan.put.to.p);
    }
    /* Of a closed repo: for those who may read the other image. */
    k.repo->anonymous_read = false;
    for (int may = 0; may < 2; may++) {
        plan(METHOD_POST, "/v2/models/me/img/blobs/uploads/?mount=" D256 "&from=models/me/base");
        assert_int_equal(k.plan.dependency.kind, DEPENDENCY_RIGHT);
        assert_slice(k.plan.dependency.name, "read");
        assert_slice(k.plan.dependency.path, "models/me/base/");
        learn((struct result){.rc = may ? 0 : E_NOTFOUND});
        plan(METHOD_POST, "/v2/models/me/img/blobs/uploads/?mount=" D256 "&from=models/me/base");
        assert_put(PUT_APPEND_OPEN);
        assert_true((k.plan.put.to.p != NULL) == may);
        ask_forget(&k);
    }
}

static void manifests(void **state)
{
    (void)state;
    ask_field(&k, "content-type", "application/x ; charset=utf-8");
    plan(METHOD_PUT, "/v2/models/me/img/manifests/v1");
    assert_put(PUT_CHANGES);
    assert_ptr_equal(k.plan.reader, &image_manifest_reader);
    assert_slice(k.plan.put.path, "v1");
    assert_slice(k.plan.put.to, "application/x");
    plan(METHOD_PUT, "/v2/models/me/img/manifests/" D256);
    assert_put(PUT_CHANGES);
    assert_true(k.plan.put.called.by == CALLED_SHA256 && k.plan.put.path.n == 0);
    plan(METHOD_DELETE, "/v2/models/me/img/manifests/v1");
    assert_put(PUT_DELETE);
    assert_slice(k.plan.put.path, "tags/v1");
    plan(METHOD_DELETE, "/v2/models/me/img/manifests/" D256);
    assert_put(PUT_CHANGES);
    assert_ptr_equal(k.plan.reader, &image_removal_reader);
    plan(METHOD_DELETE, "/v2/models/me/img/blobs/" D256);
    assert_no(405, "UNSUPPORTED");
    plan(METHOD_PUT, "/v2/models/Me/img/manifests/v1");
    assert_no(400, "NAME_INVALID");
}

/* Whoever shows no token is asked for one; whoever shows none of ours is told that there is
 * nothing. */
static void blobs_before_their_manifest(void **state)
{
    (void)state;
    plan(METHOD_GET, "/v2/models/me/img/blobs/" D256);
    assert_int_equal(k.plan.dependency.table, TABLE_HOLDER);
    learn((struct result){.rc = E_NOTFOUND});
    plan(METHOD_GET, "/v2/models/me/img/blobs/" D256);
    assert_int_equal(k.plan.right, RIGHT_PUBLISH);
    assert_int_not_equal(k.plan.kind, PLAN_REPLY);
    ask_field(&k, "authorization", "Bearer anonymous");
    plan(METHOD_GET, "/v2/models/me/img/blobs/" D256);
    assert_no(404, "BLOB_UNKNOWN");
    who.token = (const struct token *)&k; /* only looked at */
    for (int may = 0; may < 2; may++) {
        ask_field(&k, "authorization", "Bearer mrd_");
        plan(METHOD_HEAD, "/v2/models/me/img/blobs/" D256);
        assert_int_equal(k.plan.dependency.kind, DEPENDENCY_RIGHT);
        assert_int_equal(k.plan.right, RIGHT_READ);
        learn((struct result){.rc = may ? 0 : E_NOTFOUND});
        ask_field(&k, "authorization", "Bearer mrd_");
        plan(METHOD_HEAD, "/v2/models/me/img/blobs/" D256);
        if (may) {
            assert_int_equal(k.plan.dependency.table, TABLE_UPLOAD);
        } else {
            assert_no(404, "BLOB_UNKNOWN");
            k.results.count--;
        }
    }
    who.token = NULL;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

TESTS(T(uploads), T(ranges), T(mounts), T(manifests), T(blobs_before_their_manifest))
