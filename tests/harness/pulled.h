/* pulled.h - an agent with a cache in a folder of its own, and a canned mirror: for unit tests of
 * agent/pull. */
#ifndef TESTS_HARNESS_PULLED_H
#define TESTS_HARNESS_PULLED_H

#include "agent/pull/artifact.h"
#include "tests/harness/canned.h"
#include "tests/harness/local_cache.h"

struct scene {
    struct world *world;
    struct agent agent;
    struct canned mirror;
    struct artifact artifact;
    struct err why;
};

static inline int scene_setup(void **state)
{
    struct scene *s = NEW(struct scene);

    local_cache_setup((void **)&s->world);
    agent_init(&s->agent);
    s->agent.local_cache = s->world->local_cache;
    s->agent.quiet = true;
    s->agent.tries = 2;
    canned_open(&s->mirror);
    assert_int_equal(mirrors_open(slice_str(s->mirror.url), &s->agent.mirrors, NULL), 0);
    s->agent.mirror = mirrors_url(s->agent.mirrors, 0);
    *state = s;
    return 0;
}

static inline int scene_teardown(void **state)
{
    struct scene *s = *state;
    int rc;

    canned_close(&s->mirror);
    artifact_fini(&s->artifact);
    s->agent.local_cache = NULL;
    agent_fini(&s->agent);
    rc = local_cache_teardown((void **)&s->world);
    free(s);
    return rc;
}

/* What artifacts_pull() says; the artifact, why and the number of requests are the scene's. */
static inline int scene_pull(struct scene *s, const char *from,
                             void (*answer)(void *arg, struct slice request, struct buf *out),
                             void *arg)
{
    const struct artifacts_params w = {0};

    artifact_fini(&s->artifact);
    s->artifact = (struct artifact){.from = from};
    s->mirror.answer = answer;
    s->mirror.arg = arg;
    s->mirror.requests = 0;
    return artifacts_pull(&s->agent, &s->artifact, 1, &w, &s->why);
}

/* The cache's file of that digest is these bytes. */
static inline bool scene_has(struct scene *s, struct slice bytes)
{
    struct digest d;
    uint64_t size;

    digest_of(bytes, &d);
    return local_cache_find(s->world->local_cache, &d, &size, NULL) == 0 && size == bytes.n;
}

#endif
