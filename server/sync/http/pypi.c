/* pypi.c - from requirements to all that installing them takes: a page for each project that is asked for, metadata for each file
 * that is chosen, and what that requires in its turn, until nobody asks for more. */
#include "server/sync/http/pypi.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/store/blob.h"
#include "server/sync/python/metadata.h"
#include "server/sync/python/name.h"

enum {
    PAGE_BYTES = 64 << 20,
    META_BYTES = 4 << 20,
    SAID_MAX = 50,        /* wheels that were read */
    META_KEPT = 64 << 20, /* of all; what is beyond is fetched once more */
    DEPTH_MAX = 100,
    MICRO_HIGH = 99,
};

static void say(const struct py_lister *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(const struct py_lister *l, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    l->g->site->log(l->g->site->log_arg, "%s", text);
}

static uint64_t all_envs(const struct py_lister *l)
{
    return l->envs == 64 ? UINT64_MAX : ((uint64_t)1 << l->envs) - 1;
}

/* --- what is wanted ----------------------------------------------------------------------------------------------- */

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
    p->json = p->html = BUF_INIT(PAGE_BYTES * 4);
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

static void make_dirty(struct py_project *p)
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
        make_dirty(p);
    }
    p->envs |= envs;
    while (i < p->wants && !slice_eq(p->want[i].whole, r->text)) {
        i++;
    }
    if (i < p->wants) {
        if ((p->want[i].envs | envs) != p->want[i].envs) {
            make_dirty(p);
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
    make_dirty(p);
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

/* by: whose metadata says so; NULL: the settings. */
static int require(struct py_lister *l, const struct requirement *r, uint64_t envs,
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

/* Its strings are kept. *left: it is at an address of its own. */
static int read_requirement(struct py_lister *l, struct slice text, struct requirement *r,
                            bool *left, struct err *e)
{
    bool yes;
    int rc = requirement_parse(arena_copy(&l->arena, text), &l->arena, r, e);

    if (rc == 0 && r->marker.p != NULL) {
        rc = marker_eval(r->marker, &l->env[0], SLICE(""), &yes, e);
    }
    *left = rc == 0 && r->url.p != NULL;
    if (*left) {
        say(l, "left out: \"%.200s\" is at an address of its own, no index has it",
            arena_cstr(&l->arena, text));
        l->left_out++;
    }
    return rc;
}

/* --- metadata ----------------------------------------------------------------------------------------------------- */

static int apply(struct py_meta *m, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < m->count; i++) {
        rc = require(m->project->l, &m->requires[i], m -> project -> envs, m -> project, e);
    }
    return rc;
}

static struct py_meta *meta_new(struct py_project *p, struct py_file *f)
{
    struct py_meta *m = NEW(struct py_meta);

    m->project = p;
    m->file = f;
    m->bytes = BUF_INIT(META_BYTES + 1);
    f->meta = m;
    list_push_back(&p->l->unread, &m->node);
    return m;
}

/* Nothing lies beside it: one of its version and platform is read. */
static void want_inside(struct py_project *p, struct py_file *f)
{
    struct py_file *of = pypi_wheel_of(p, f);

    if (of->meta == NULL) {
        meta_new(p, of)->inside = true;
    }
    f->meta = of->meta;
}

/* A file that is new here: what does it require? Wheels of one version mostly say the same, in the same bytes. */
static void want_meta(struct py_project *p, struct py_file *f)
{
    struct digest d;
    struct slice hex = f->metadata;
    bool known = slice_starts(hex, SLICE("sha256=")) && digest_parse(slice_from(hex, 7), &d);

    LIST_EACH (&p->metas, it) {
        struct py_meta *m = LIST_ITEM(it, struct py_meta, node);
        if (known && m->digest_known && digest_eq(&m->digest, &d)) {
            f->meta = m;
            return;
        }
    }
    (void)meta_new(p, f);
    f->meta->digest_known = known;
    if (known) {
        f->meta->digest = d;
    }
}

/* Chooses anew, and asks again what was asked before, of more. */
static int settle(struct py_project *p, struct err *e)
{
    int rc = 0;

    if (!p->read) {
        return 0;
    }
    (void)pypi_choose(p);
    for (size_t i = 0; i < p->files; i++) {
        struct py_file *f = &p->file[i];
        if (!f->chosen || f->meta != NULL || !p->l->g->site->conf->dependencies) {
            continue;
        }
        if (f->metadata.p != NULL) {
            want_meta(p, f);
        } else if (f->dist.wheel) {
            want_inside(p, f);
        }
    }
    LIST_EACH (&p->metas, it) {
        if (rc == 0) {
            rc = apply(LIST_ITEM(it, struct py_meta, node), e);
        }
    }
    return rc;
}

struct lines {
    struct py_lister *l;
    const struct py_file *file;
    struct requirement *all;
    size_t n, room;
};

static int on_requires(void *arg, struct slice requirement, struct err *e)
{
    struct lines *x = arg;
    struct requirement r;
    bool left = false;

    if (read_requirement(x->l, requirement, &r, &left, e) != 0) {
        /* One package's bad word is no reason to mirror none of the others. */
        say(x->l, "%.100s: left out: %s", arena_cstr(&x->l->arena, x->file->name), e->text);
        err_clear(e);
        left = true;
    }
    if (left) {
        return 0;
    }
    if (x->n == x->room) {
        x->room = x->room != 0 ? 2 * x->room : 16;
        x->all = realloc(x->all, x->room * sizeof x->all[0]);
        CHECK(x->all != NULL);
    }
    x->all[x->n++] = r;
    return 0;
}

/* bytes: of m->bytes. */
static int learn_meta(struct py_meta *m, struct err *e)
{
    struct py_lister *l = m->project->l;
    struct lines x = {.l = l, .file = m->file};
    struct metadata_events ev = {on_requires, &x};
    struct slice name, version;
    int rc = metadata_read(buf_slice(&m->bytes), &ev, &name, &version, e);

    m->requires = x.all;
    m->count = x.n;
    m->read = true;
    if (rc != 0) {
        say(l, "%.200s: %s", arena_cstr(&l->arena, m->file->name), e->text);
        err_clear(e);
    }
    if (!m->digest_known) {
        digest_of(buf_slice(&m->bytes), &m->digest);
        m->digest_known = true;
    }
    l->meta_bytes += m->bytes.n;
    if (m->inside || l->meta_bytes > META_KEPT) {
        l->meta_bytes -= m->bytes.n;
        buf_free(&m->bytes);
    }
    list_push_back(&m->project->metas, &m->node);
    return apply(m, e);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void go_on(struct py_lister *l);

static void end(struct py_lister *l, int rc, const struct err *why)
{
    if (!l->over) {
        l->over = true;
        http_listed(l->g, rc, why, NULL);
    }
}

static void answered(struct py_lister *l, int rc, struct err *why)
{
    l->busy--;
    if (rc != 0) {
        end(l, rc, why);
    } else {
        go_on(l);
    }
}

static void on_meta(struct doc *d, int rc)
{
    struct py_meta *m = d->arg;
    struct py_lister *l = m->project->l;
    struct err why = d->why;
    struct digest got;

    if (rc == 0) {
        err_clear(&why);
        buf_adds(&m->bytes, buf_slice(&d->body));
        digest_of(buf_slice(&d->body), &got);
        rc = m->digest_known && !digest_eq(&got, &m->digest)
                 ? err_set(&why, E_CORRUPT, "its SHA-256 is not the announced one")
                 : learn_meta(m, &why);
    } else if (rc == E_NOTFOUND) {
        /* The page says that it is there: then the file is of no use to clients that believe it. */
        rc = err_set(&why, E_AGAIN, "the upstream answers %d", d->status);
    }
    if (rc != 0) {
        err_prefix(&why, "metadata of %.100s", arena_cstr(&l->arena, m->file->name));
    }
    doc_free(&m->doc);
    answered(l, rc, &why);
}

/* What an earlier run brought is not asked for again. */
static bool have_meta(struct py_meta *m)
{
    return m->digest_known &&
           blob_read_whole(m->project->l->g->site->store, &m->digest, &m->bytes, NULL) == 0;
}

static void say_inside(const struct py_meta *m)
{
    struct py_lister *l = m->project->l;

    if (l->inside++ < SAID_MAX) {
        say(l,
            "no metadata beside %.200s: read out of the wheel, %" PRIu64
            " bytes were asked for; it stands for all of its version and platform",
            arena_cstr(&l->arena, m->file->name), m->asked_bytes);
    }
}

/* Untold: the run goes on, and is held in the end. */
void pypi_wheel_read(struct py_meta *m, int rc, struct err *why)
{
    struct py_lister *l = m->project->l;

    if (rc == 0) {
        say_inside(m);
        rc = learn_meta(m, why);
    } else if (rc == E_INVALID || rc == E_TOOBIG || rc == E_UNSUPPORTED) {
        m->untold = arena_cstr(&l->arena, slice_str(why->text));
        say(l, "what %.200s requires cannot be told: %s", arena_cstr(&l->arena, m->file->name),
            m->untold);
        rc = 0;
    } else {
        err_prefix(why, "metadata in %.100s", arena_cstr(&l->arena, m->file->name));
    }
    answered(l, rc, why);
}

/* "x.whl" -> "x.whl.metadata", in front of a query. */
struct slice pypi_meta_url(const struct py_file *f, struct arena *a)
{
    struct slice query = f->url;
    struct slice path = slice_cut(&query, '?');

    return arena_fmt(a, SLICE_FMT ".metadata%s" SLICE_FMT, SLICE_ARG(path),
                     path.n != f->url.n ? "?" : "", SLICE_ARG(query));
}

static void ask_meta(struct py_meta *m)
{
    struct py_lister *l = m->project->l;

    l->busy++;
    if (m->inside) {
        pypi_wheel_ask(m);
        return;
    }
    m->doc = doc_ask_via(l->g, pypi_meta_url(m->file, &l->arena).p, m->project->url, NULL,
                         META_BYTES, on_meta, m);
}

static void on_page(struct doc *d, int rc)
{
    struct py_project *p = d->arg;
    struct py_lister *l = p->l;
    struct err why = d->why;

    if (rc == 0) {
        err_clear(&why);
        p->url = arena_copy(&l->arena, slice_str(d->final_url));
        p->read = true;
        rc = pypi_read_page(p, buf_slice(&d->body), d->content_type, &why);
        if (rc == 0) {
            make_dirty(p);
        }
    } else if (rc == E_NOTFOUND) {
        p->read = p->absent = true;
        rc = 0;
    }
    if (rc != 0) {
        err_prefix(&why, "project %.100s", arena_cstr(&l->arena, p->name));
    }
    doc_free(&p->doc);
    answered(l, rc, &why);
}

static void ask_page(struct py_project *p)
{
    static const char accept[] =
        "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, "
        "text/html;q=0.1";
    struct py_lister *l = p->l;
    struct slice url = arena_fmt(&l->arena, "%s" SLICE_FMT SLICE_FMT "/", l->g->base,
                                 SLICE_ARG(l->index), SLICE_ARG(p->name));

    l->busy++;
    p->doc = doc_ask(l->g, url.p, accept, PAGE_BYTES, on_page, p);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* A wheel that is kept, and nobody tells what it requires: the closure may lack something. NULL: there is none. */
static const struct py_meta *untold(const struct py_project *p)
{
    for (size_t i = 0; i < p->files; i++) {
        if (p->file[i].chosen && p->file[i].meta != NULL && p->file[i].meta->untold != NULL) {
            return p->file[i].meta;
        }
    }
    return NULL;
}

static char *doubt_of_untold(struct py_lister *l)
{
    struct py_project *p, *tmp;

    HASH_ITER(hh, l->by_name, p, tmp)
    {
        const struct py_meta *m = untold(p);
        if (m != NULL) {
            return arena_cstr(
                &l->arena,
                arena_fmt(&l->arena,
                          "the index has no metadata beside %.100s, and what it requires cannot be "
                          "read out of it: %.160s; list that too and set dependencies = false",
                          arena_cstr(&l->arena, m->file->name), m->untold));
        }
    }
    return NULL;
}

/* Requirements that nothing answers: somebody should look before this becomes public. */
static char *doubt_of(struct py_lister *l)
{
    struct py_project *p, *tmp;
    size_t none = 0;
    char *first = NULL;

    HASH_ITER(hh, l->by_name, p, tmp)
    {
        const struct py_want *w = pypi_unsatisfied(p);
        if (w == NULL) {
            continue;
        }
        say(l, "nothing satisfies \"%.200s\", which %.100s requires%s",
            arena_cstr(&l->arena, w->whole), arena_cstr(&l->arena, w->who),
            p->absent ? ": the index has no such project" : "");
        if (none++ == 0) {
            first = arena_cstr(
                &l->arena, arena_fmt(&l->arena,
                                     "nothing on the index satisfies \"%.100s\", which %.60s "
                                     "requires%s",
                                     arena_cstr(&l->arena, w->whole), arena_cstr(&l->arena, w->who),
                                     p->absent ? ": it has no such project" : ""));
        }
    }
    return none > 1
               ? arena_cstr(&l->arena, arena_fmt(&l->arena, "%s; and %zu more", first, none - 1))
               : first;
}

static void finish(struct py_lister *l)
{
    struct engine_listed done = {.left_out = l->left_out};
    struct err why = {0};
    int rc;

    l->over = true;
    done.doubt = doubt_of(l);
    if (done.doubt == NULL) {
        done.doubt = doubt_of_untold(l);
    }
    rc = pypi_give_all(l, &why);
    http_listed(l->g, rc, rc != 0 ? &why : NULL, &done);
}

static void go_on(struct py_lister *l)
{
    while (!l->over && l->busy < l->g->site->parallel) {
        struct err why = {0};
        int rc = 0;
        if (!list_empty(&l->dirty)) {
            rc = settle(LIST_ITEM(list_pop_front(&l->dirty), struct py_project, dirty), &why);
        } else if (!list_empty(&l->unread)) {
            struct py_meta *m = LIST_ITEM(list_pop_front(&l->unread), struct py_meta, node);
            if (m->inside ? pypi_wheel_have(m) : have_meta(m)) {
                rc = learn_meta(m, &why);
            } else {
                ask_meta(m);
            }
        } else if (!list_empty(&l->waiting)) {
            ask_page(LIST_ITEM(list_pop_front(&l->waiting), struct py_project, node));
        } else {
            break;
        }
        if (rc != 0) {
            end(l, rc, &why);
        }
    }
    if (!l->over && l->busy == 0) {
        finish(l);
    }
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static int on_line(void *arg, struct slice text, struct err *e)
{
    struct py_lister *l = arg;
    struct requirement r;
    bool left = false;
    int rc = read_requirement(l, text, &r, &left, e);

    return rc != 0 || left ? rc : require(l, &r, all_envs(l), NULL, e);
}

static void on_odd(void *arg, struct slice line)
{
    struct py_lister *l = arg;

    say(l, "a line of the requirements says nothing to a mirror: %.200s",
        arena_cstr(&l->arena, line));
}

static int read_settings(struct py_lister *l, struct err *e)
{
    const struct sync_conf *c = l->g->site->conf;
    const struct requirements_events ev = {on_line, on_odd, l};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->python_count; i++) {
        for (size_t k = 0; rc == 0 && k < c->platforms_count; k++) {
            rc = l->envs == PYPI_ENVS ||
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

static void begin(struct http_engine *g)
{
    struct py_lister *l = g->lister_state;

    err_clear(&g->why);
    if (read_settings(l, &g->why) != 0) {
        end(l, g->why.code == E_NOTFOUND ? E_CONFIG : g->why.code, &g->why);
    } else {
        go_on(l);
    }
}

static void py_start(struct http_engine *g)
{
    struct py_lister *l = NEW(struct py_lister);
    size_t parts = 1;

    g->lister_state = l;
    l->g = g;
    l->index = slice_str(g->site->conf->index);
    l->json = l->html = BUF_INIT(PAGE_BYTES);
    list_init(&l->waiting);
    list_init(&l->unread);
    list_init(&l->dirty);
    for (size_t i = 0; i < l->index.n; i++) {
        parts += l->index.p[i] == '/';
    }
    for (l->up = SLICE(""); parts > 0; parts--) {
        l->up = arena_fmt(&l->arena, "../" SLICE_FMT, SLICE_ARG(l->up));
    }
    http_soon(g, begin);
}

static void meta_free(struct py_meta *m)
{
    doc_free(&m->doc);
    buf_free(&m->bytes);
    free(m->requires);
    free(m);
}

static void project_free(struct py_project *p)
{
    doc_free(&p->doc);
    for (size_t i = 0; i < p->files; i++) { /* several may share one: it is the first one's */
        if (p->file[i].meta != NULL && p->file[i].meta->file != &p->file[i]) {
            p->file[i].meta = NULL;
        }
    }
    for (size_t i = 0; i < p->files; i++) {
        if (p->file[i].meta != NULL) {
            meta_free(p->file[i].meta);
        }
    }
    buf_free(&p->json);
    buf_free(&p->html);
    free(p->want);
    free(p->file);
    free(p);
}

static void py_free(struct http_engine *g)
{
    struct py_lister *l = g->lister_state;
    struct py_project *p, *tmp;

    if (l == NULL) {
        return;
    }
    HASH_ITER(hh, l->by_name, p, tmp)
    {
        HASH_DEL(l->by_name, p);
        project_free(p);
    }
    buf_free(&l->json);
    buf_free(&l->html);
    free(l->given);
    arena_fini(&l->arena);
    free(l);
    g->lister_state = NULL;
}

const struct lister lister_pypi = {"pypi", py_start, py_free, NULL, pypi_source};
