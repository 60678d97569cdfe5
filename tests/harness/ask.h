/* ask.h - a repo opened from a few settings, and requests put to its plan, for tests of
 * adapters. */
#ifndef TESTS_HARNESS_ASK_H
#define TESTS_HARNESS_ASK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/repo/repo.h"

struct ask {
    struct repo *repo;
    struct arena arena;
    struct http_field field[8];
    struct http_req req;
    struct results results;
    struct plan plan;
    struct err why;
};

static inline void ask_open_conf(struct ask *k, const struct repo_conf *conf)
{
    *k = (struct ask){0};
    assert_int_equal(repo_open(conf, &k->repo, &k->why), 0);
}

static inline void ask_open(struct ask *k, const char *name, const char *protocol,
                            const char *origin)
{
    struct repo_conf conf = {.name = name,
                             .protocol = protocol,
                             .origin.url = origin,
                             .anonymous_read = true,
                             .source = "test:1"};
    ask_open_conf(k, &conf);
}

static inline void ask_close(struct ask *k)
{
    repo_close(&k->repo);
    arena_fini(&k->arena);
}

/* One more field for the next ask(). */
static inline void ask_field(struct ask *k, const char *name, const char *value)
{
    k->field[k->req.nfields++] = (struct http_field){slice_str(name), slice_str(value)};
}

/* target: below the repo, with its query. Fields are forgotten afterwards, facts are kept until
 * ask_forget(). */
static inline int ask(struct ask *k, enum method method, const char *target)
{
    struct slice whole;
    struct route to;
    int rc;

    k->req.method = method;
    k->req.target = arena_fmt(&k->arena, "/%s%s", k->repo->name, target);
    whole = k->req.target;
    k->req.path = slice_cut(&whole, '?');
    k->req.query = k->req.path.n == k->req.target.n ? SLICE_NONE : whole;
    k->req.fields = k->field;
    k->req.arena = &k->arena;
    to = route_of(&k->repo, 1, k->req.path, NULL);
    assert_ptr_equal(to.repo, k->repo);
    k->plan = (struct plan){0};
    rc = k->repo->ops->plan(k->repo, &k->req, to.path, &(struct principal){0}, &k->results,
                            &k->arena, &k->plan, &k->why);
    k->req.nfields = 0;
    return rc;
}

/* The plan's need becomes a fact, and it is asked again. */
static inline int ask_again(struct ask *k, const struct result *result)
{
    struct slice target = k->req.target;
    size_t skip = strlen(k->repo->name) + 1;

    assert_int_equal(k->plan.kind, PLAN_DEPENDENCY);
    k->results.result[k->results.count] = *result;
    k->results.result[k->results.count++].dependency = k->plan.dependency;
    return ask(k, k->req.method, arena_cstr(&k->arena, slice_from(target, skip)));
}

static inline void ask_forget(struct ask *k)
{
    k->results.count = 0;
}

static inline void assert_slice(struct slice got, const char *lookup)
{
    if (!slice_eqs(got, lookup)) {
        fail_msg("\"" SLICE_FMT "\" is not \"%s\"", SLICE_ARG(got), lookup);
    }
}

#define TESTS(...)                                                                                 \
    int main(void)                                                                                 \
    {                                                                                              \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                           \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

#endif
