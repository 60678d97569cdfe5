#include "server/request/response_cache.h"

#include <stdio.h>

#include "tests/harness/ask.h"

static struct arena arena;
static struct repo_ops ops = {.name = "hf"};
static struct repo repo = {.name = "hf", .ops = &ops, .anonymous_read = true};
static struct repo_set set = {.owner.holds = 1}; /* ours: never the last */

static int setup(void **state)
{
    *state = response_cache_open(4, 4, 1 << 20);
    repo.generation = 0;
    repo.by_caller = false;
    repo.origin = (struct origin *)&repo; /* is one there? Nobody looks into it */
    ops.by_host = false;
    return 0;
}

static int teardown(void **state)
{
    struct response_cache *t = *state;

    response_cache_close(&t);
    assert_int_equal(set.owner.holds, 1);
    arena_fini(&arena);
    return 0;
}

static struct http_req request(const char *method, const char *target, const char *authorization)
{
    struct http_field *f = ARENA_NEW(&arena, struct http_field);
    struct http_req r = {.arena = &arena, .target = slice_str(target), .path = slice_str(target)};

    *f = (struct http_field){SLICE("authorization"), slice_str(authorization)};
    r.method = strcmp(method, "HEAD") == 0 ? METHOD_HEAD : METHOD_GET;
    r.fields = f;
    r.nfields = authorization != NULL;
    r.host = SLICE("mirror.example");
    return r;
}

static struct slice name_of(const struct http_req *r)
{
    return cached_response_name(r, &repo, slice_from(r->path, 4), false);
}

static struct cached_response *add(struct response_cache *t, const char *target, const char *key)
{
    struct http_req r = request("GET", target, NULL);
    struct cached_response *h = cached_response_new(&set, &repo, name_of(&r), slice_str(key));
    struct cached_response *held = h;

    h->fresh_until_unix_s = 100;
    response_cache_add(t, h);
    cached_response_release(&held);
    return h;
}

static bool has(struct response_cache *t, const char *target, uint64_t unix_s)
{
    struct http_req r = request("GET", target, NULL);

    return response_cache_find(t, &repo, name_of(&r), unix_s) != NULL;
}

static void found_until_it_is_stale(void **state)
{
    add(*state, "/hf/a", "k");
    assert_true(has(*state, "/hf/a", 10));
    assert_false(has(*state, "/hf/b", 10));
    assert_false(has(*state, "/hf/a", 100));
    add(*state, "/hf/a", "k");
    repo.generation++;
    assert_false(has(*state, "/hf/a", 10));
}

static void the_one_used_longest_ago_goes(void **state)
{
    const char *names[] = {"/hf/a", "/hf/b", "/hf/c", "/hf/d"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        add(*state, names[i], "k");
    }
    assert_true(has(*state, "/hf/a", 10));
    add(*state, "/hf/e", "k");
    assert_true(has(*state, "/hf/a", 10));
    assert_false(has(*state, "/hf/b", 10));
    assert_true(has(*state, "/hf/c", 10));
}

static void forgotten_by_key_and_by_repo(void **state)
{
    add(*state, "/hf/a", "one");
    add(*state, "/hf/b", "two");
    add(*state, "/hf/c", "one");
    response_cache_forget(*state, SLICE("other"), SLICE("one"));
    assert_true(has(*state, "/hf/a", 10));
    response_cache_forget(*state, SLICE("hf"), SLICE("one"));
    assert_false(has(*state, "/hf/a", 10));
    assert_true(has(*state, "/hf/b", 10));
    assert_false(has(*state, "/hf/c", 10));
    response_cache_forget(*state, SLICE("hf"), SLICE_NONE);
    assert_false(has(*state, "/hf/b", 10));
}

static void replaced_by_its_name(void **state)
{
    add(*state, "/hf/a", "one");
    add(*state, "/hf/a", "two");
    response_cache_forget(*state, SLICE("hf"), SLICE("one"));
    assert_true(has(*state, "/hf/a", 10));
    response_cache_forget(*state, SLICE("hf"), SLICE("two"));
    assert_false(has(*state, "/hf/a", 10));
}

static void whom_it_serves(void **state)
{
    struct http_req head = request("HEAD", "/hf/a", NULL);
    struct http_req get = request("GET", "/hf/a", NULL);
    struct http_req reported = request("GET", "/hf/a", "Bearer hf_x");
    struct cached_response *h = add(*state, "/hf/a", "k");

    assert_true(cached_response_serves(h, &head) && cached_response_serves(h, &get) &&
                cached_response_serves(h, &reported));
    h->head_only = true;
    assert_true(cached_response_serves(h, &head) && !cached_response_serves(h, &get));
    h->head_only = false;
    repo.by_caller = true;
    assert_true(cached_response_serves(h, &get) && !cached_response_serves(h, &reported));
    h->for_all = true;
    assert_true(cached_response_serves(h, &reported));
}

static void names(void **state)
{
    struct http_req a = request("GET", "/hf/a?x=1", NULL);
    struct http_req b = request("GET", "/hf/a?x=1", NULL);
    struct http_req c = request("GET", "/hf/a?x=2", NULL);
    struct http_req post = request("GET", "/hf/a", NULL);

    (void)state;
    b.host = SLICE("other.example");
    b.tls = true;
    assert_true(slice_eq(name_of(&a), name_of(&b)));
    assert_false(slice_eq(name_of(&a), name_of(&c)));
    ops.by_host = true;
    assert_false(slice_eq(name_of(&a), name_of(&b)));
    b.host = a.host;
    assert_false(slice_eq(name_of(&a), name_of(&b)));
    repo.public_url = "https://mirror.example";
    assert_true(slice_eq(name_of(&a), name_of(&b)));
    repo.public_url = NULL;
    post.method = METHOD_POST;
    assert_null(name_of(&post).p);
}

/* What an origin may tell answers apart by: another value is another answer, none is not an empty
 * one. */
static void names_by_what_is_forwarded(void **state)
{
    char field[] = "authorization";
    char *forward[] = {field};
    struct http_req none = request("GET", "/hf/a", NULL), one = request("GET", "/hf/a", "1");
    struct http_req other = request("GET", "/hf/a", "2"), empty = request("GET", "/hf/a", "");
    struct http_req same = request("GET", "/hf/a", "1");

    (void)state;
    assert_true(slice_eq(name_of(&one), name_of(&other)));
    repo.forward = forward;
    repo.forwards = 1;
    assert_true(slice_eq(name_of(&one), name_of(&same)));
    assert_false(slice_eq(name_of(&one), name_of(&other)));
    assert_false(slice_eq(name_of(&one), name_of(&none)));
    assert_false(slice_eq(name_of(&empty), name_of(&none)));
    repo.forward = NULL;
    repo.forwards = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(found_until_it_is_stale, setup, teardown),
        cmocka_unit_test_setup_teardown(the_one_used_longest_ago_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(forgotten_by_key_and_by_repo, setup, teardown),
        cmocka_unit_test_setup_teardown(replaced_by_its_name, setup, teardown),
        cmocka_unit_test_setup_teardown(whom_it_serves, setup, teardown),
        cmocka_unit_test_setup_teardown(names, setup, teardown),
        cmocka_unit_test_setup_teardown(names_by_what_is_forwarded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
