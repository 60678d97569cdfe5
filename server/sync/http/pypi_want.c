/* pypi_want.c - what is asked of whom: each requirement, where it holds, becomes a want of its project. */
#include "server/sync/http/pypi.h"

#include <stdlib.h>

enum { DEPTH_MAX = 100, MICRO_HIGH = 99 };

static struct py_project *project_of(struct py_lister *l, struct slice name, unsigned depth,
                                     struct err *e)
{
    struct py_project *p;

    HASH_FIND(hh, l->by_name, name.p, name.n, p);
    if (p != NULL) {
        p->depth = depth < p->depth ? depth : p->depth;
        return p;
    }
    if (HASH_COUNT(l->by_name) >= l->g->site->conf->max_projects || depth > DEPTH_MAX) {
        err_set(e, E_TOOBIG,
                "dependencies come to more than %u projects, or lie more than %d deep, see "
                "max_projects",
                l->g->site->conf->max_projects, DEPTH_MAX);
        return NULL;
    }
    p = NEW(struct py_project);
    p->l = l;
    p->name = arena_copy(&l->arena, name);
    p->depth = depth;
    p->json = p->html = BUF_INIT(PYPI_PAGE_BYTES * 4);
    list_init(&p->metas);
    HASH_ADD_KEYPTR(hh, l->by_name, p->name.p, p->name.n, p);
    list_push_back(&l->waiting, &p->node);
    return p;
}

static bool add_extras(struct py_project *p, const struct requirement *r)
{
    bool more = false;

    for (size_t i = 0; i < r->extras; i++) {
        size_t k = 0;
        while (k < p->extras && !slice_eq(p->extra[k], r->extra[i])) {
            k++;
        }
        if (k == p->extras && k < PYEXTRAS_MAX) {
            p->extra[p->extras++] = arena_copy(&p->l->arena, r->extra[i]);
            more = true;
        }
    }
    return more;
}

void pypi_make_dirty(struct py_project *p)
{
    if (!list_linked(&p->dirty)) {
        list_push_back(&p->l->dirty, &p->dirty);
    }
}

static int add_want(struct py_project *p, const struct requirement *r, uint64_t envs,
                    struct slice who, struct err *e)
{
    struct arena *a = &p->l->arena;
    size_t i = 0;

    if (add_extras(p, r) || (p->envs | envs) != p->envs) {
        pypi_make_dirty(p);
    }
    p->envs |= envs;
    while (i < p->wants && !slice_eq(p->want[i].whole, r->text)) {
        i++;
    }
    if (i < p->wants) {
        if ((p->want[i].envs | envs) != p->want[i].envs) {
            pypi_make_dirty(p);
        }
        p->want[i].envs |= envs;
        return 0;
    }
    if (p->wants == PYPI_WANTS) {
        return err_set(e, E_TOOBIG, "%.100s is required in more than %d ways",
                       arena_cstr(a, p->name), PYPI_WANTS);
    }
    p->want = realloc(p->want, (p->wants + 1) * sizeof p->want[0]);
    CHECK(p->want != NULL);
    pypi_make_dirty(p);
    p->want[p->wants++] = (struct py_want){
        .specs = r->specs, .envs = envs, .who = who, .whole = arena_copy(a, r->text)};
    return 0;
}

/* Where its marker holds, for one of the extras that are asked for. */
static int envs_of(const struct py_lister *l, const struct requirement *r, uint64_t envs,
                   const struct slice *extra, size_t extras, uint64_t *out, struct err *e)
{
    int rc = 0;

    *out = r->marker.p == NULL ? envs : 0;
    for (size_t i = 0; r->marker.p != NULL && rc == 0 && i < l->envs; i++) {
        bool yes = false;
        struct pyenv env = l->env[i];
        if ((envs >> i & 1) == 0) {
            continue;
        }
        for (size_t k = 0; rc == 0 && !yes && k <= extras; k++) {
            struct slice x = k == 0 ? SLICE("") : extra[k - 1];
            env.micro = 0;
            rc = marker_eval(r->marker, &env, x, &yes, e);
            if (rc == 0 && !yes) { /* nobody said which one it will be */
                env.micro = MICRO_HIGH;
                rc = marker_eval(r->marker, &env, x, &yes, e);
            }
        }
        *out |= (uint64_t)yes << i;
    }
    return rc;
}

int pypi_require(struct py_lister *l, const struct requirement *r, uint64_t envs,
                 const struct py_project *by, struct err *e)
{
    struct py_project *p;
    uint64_t where = 0;
    int rc =
        envs_of(l, r, envs, by != NULL ? by->extra : NULL, by != NULL ? by->extras : 0, &where, e);

    if (rc != 0 || where == 0) {
        return rc;
    }
    p = project_of(l, r->name, by != NULL ? by->depth + 1 : 0, e);
    if (p == NULL) {
        return E_TOOBIG;
    }
    return add_want(p, r, where, by != NULL ? by->name : SLICE("the settings"), e);
}

int pypi_read_requirement(struct py_lister *l, struct slice text, struct requirement *r, bool *left,
                          struct err *e)
{
    bool yes;
    int rc = requirement_parse(arena_copy(&l->arena, text), &l->arena, r, e);

    if (rc == 0 && r->marker.p != NULL) {
        rc = marker_eval(r->marker, &l->env[0], SLICE(""), &yes, e);
    }
    *left = rc == 0 && r->url.p != NULL;
    if (*left) {
        pypi_say(l, "left out: \"%.200s\" is at an address of its own, no index has it",
                 arena_cstr(&l->arena, text));
        l->left_out++;
    }
    return rc;
}

/* --- the settings ------------------------------------------------------------------------------------------------- */

static uint64_t all_envs(const struct py_lister *l)
{
    return l->envs == 64 ? UINT64_MAX : ((uint64_t)1 << l->envs) - 1;
}

static int on_line(void *arg, struct slice text, struct err *e)
{
    struct py_lister *l = arg;
    struct requirement r;
    bool left = false;
    int rc = pypi_read_requirement(l, text, &r, &left, e);

    return rc != 0 || left ? rc : pypi_require(l, &r, all_envs(l), NULL, e);
}

static void on_odd(void *arg, struct slice line)
{
    struct py_lister *l = arg;

    pypi_say(l, "a line of the requirements says nothing to a mirror: %.200s",
             arena_cstr(&l->arena, line));
}

int pypi_require_settings(struct py_lister *l, struct err *e)
{
    const struct sync_conf *c = l->g->site->conf;
    const struct requirements_events ev = {on_line, on_odd, l};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->python_count; i++) {
        for (size_t k = 0; rc == 0 && k < c->platforms_count; k++) {
            rc = l->envs == PYENVS_MAX ||
                         !pyenv_init(&l->env[l->envs++], c->python[i], c->platforms[k])
                     ? err_set(e, E_CONFIG, "python and platforms make no environment")
                     : 0;
        }
    }
    for (size_t i = 0; rc == 0 && i < c->requirements_count; i++) {
        const char *r = c->requirements[i];
        rc = strncmp(r, "file:", 5) == 0 ? requirements_file(r + 5, &ev, e)
                                         : on_line(l, slice_str(r), e);
    }
    return rc;
}
