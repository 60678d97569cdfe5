/* pypi.c - from requirements to all that installing them takes: a page for each project that is
 * asked for, metadata for each file that is chosen, and what that requires in its turn, until
 * nobody asks for more. */
#include "server/sync/http/pypi.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/codec/url.h"

/* --- doubts ---
 *
 * What somebody should look at before it becomes public: wants that nothing answers, wheels that
 * nobody tells the requirements of.
 */

/* A wheel that is kept, and nobody tells what it requires: the closure may lack something. NULL:
 * there is none. */
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
                          "the index has no metadata for %.100s, and none can be read from the "
                          "file: %.160s; list what it requires and set dependencies = false",
                          arena_cstr(&l->arena, m->file->name), m->untold));
        }
    }
    return NULL;
}

/* Requirements that nothing answers: somebody should look before this becomes public. */
static char *doubt_of_wants(struct py_lister *l)
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
        pypi_say(l, "nothing satisfies \"%.200s\", which %.100s requires%s",
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

/* NULL: all is well */
static char *pypi_doubt(struct py_lister *l)
{
    char *doubt = doubt_of_wants(l);

    return doubt != NULL ? doubt : doubt_of_untold(l);
}

/* --- entries ---
 *
 * What was chosen, as entries: files, their metadata, and pages that name them with links inside
 * the tree.
 */

enum { PATH_ROOM = 4096 };

static int give_pypi_entry(struct py_lister *l, struct sync_entry *en, struct slice path,
                           struct given what)
{
    if (l->givens == l->given_room) {
        l->given_room = l->given_room != 0 ? 2 * l->given_room : 256;
        l->given = realloc(l->given, l->given_room * sizeof l->given[0]);
        CHECK(l->given != NULL);
    }
    en->type = SYNC_FILE;
    en->path = path;
    en->mtime_ns = SYNC_TIME_UNKNOWN;
    en->ref = (uint64_t)l->givens << 8;
    l->given[l->givens++] = what;
    return l->g->ev.on_entry(l->g->arg, en);
}

static int give_made_pypi_file(struct py_lister *l, const char *path, const struct buf *made,
                               struct given what)
{
    struct sync_entry en = {.size_bytes = made->n, .digest_known = true};

    digest_of(buf_slice(made), &en.digest);
    return give_pypi_entry(l, &en, slice_str(path), what);
}

static int give_file(struct py_lister *l, struct py_project *p, struct py_file *f)
{
    struct arena a = {0};
    struct slice path =
        arena_fmt(&a, "files/" SLICE_FMT "/" SLICE_FMT, SLICE_ARG(p->name), SLICE_ARG(f->name));
    struct sync_entry en = {.size_bytes =
                                f->size_bytes != LENGTH_UNKNOWN ? f->size_bytes : SYNC_SIZE_UNKNOWN,
                            .digest_known = f->digest_known,
                            .digest = f->digest};
    int rc = give_pypi_entry(l, &en, path, (struct given){.project = p, .file = f});

    if (rc == 0 && f->meta != NULL && f->meta->read && !f->meta->inside) {
        struct sync_entry m = {
            .size_bytes = SYNC_SIZE_UNKNOWN, .digest_known = true, .digest = f->meta->digest};
        rc = give_pypi_entry(l, &m, arena_fmt(&a, SLICE_FMT ".metadata", SLICE_ARG(path)),
                             (struct given){.project = p, .file = f, .metadata = true});
    }
    arena_fini(&a);
    return rc;
}

/* --- pages ------------------------------------------------------------------------------------ */

static void add_to(struct page *page, const struct py_project *p, const struct py_file *f,
                   struct arena *a)
{
    struct buf href = BUF_INIT(PATH_ROOM);
    char hex[DIGEST_HEX + 1], meta[DIGEST_HEX + 8];
    struct page_file out = {.href = SLICE_NONE,
                            .requires_python = f->requires_python,
                            .upload_time = f->upload_time,
                            .yanked = f->yanked,
                            .yanked_why = f->yanked_why,
                            .size_bytes = f->size_bytes};

    buf_addf(&href, SLICE_FMT "files/" SLICE_FMT "/", SLICE_ARG(p->l->up), SLICE_ARG(p->name));
    url_encode(f->name, &href);
    if (f->digest_known) {
        digest_format(&f->digest, hex);
        out.hash_name = SLICE("sha256");
        out.hash = slice_str(hex);
    }
    if (f->meta != NULL && f->meta->read && !f->meta->inside) {
        memcpy(meta, "sha256=", 7);
        digest_format(&f->meta->digest, meta + 7);
        out.metadata = arena_copy(a, slice_str(meta));
    }
    page_add(page, &out, buf_slice(&href), f->name);
    buf_free(&href);
}

static int write_page(struct py_project *p, enum page_format format, struct buf *out, struct err *e)
{
    const struct py_file *before = NULL;
    struct arena a = {0};
    struct page page;
    int rc;

    page_init_own(&page, format, p->name, out->max);
    for (size_t i = 0; i < p->files; i++) {
        const struct py_file *f = &p->file[i];
        if (!f->chosen) {
            continue;
        }
        if (before == NULL || pyversion_cmp(&before->dist.version, &f->dist.version) != 0) {
            struct buf v = BUF_INIT(1024);
            pyversion_write(&f->dist.version, &v);
            page_version(&page, buf_slice(&v));
            buf_free(&v);
        }
        before = f;
        add_to(&page, p, f, &a);
    }
    rc = page_finish(&page, out, e);
    page_fini(&page);
    arena_fini(&a);
    return rc;
}

static bool has_files(const struct py_project *p)
{
    for (size_t i = 0; i < p->files; i++) {
        if (p->file[i].chosen) {
            return true;
        }
    }
    return false;
}

static int give_project(struct py_lister *l, struct py_project *p, struct err *e)
{
    struct arena a = {0};
    struct slice at =
        arena_fmt(&a, SLICE_FMT SLICE_FMT "/index", SLICE_ARG(l->index), SLICE_ARG(p->name));
    int rc = write_page(p, PAGE_JSON, &p->json, e);

    rc = rc != 0 ? rc : write_page(p, PAGE_HTML, &p->html, e);
    if (rc == 0) {
        rc = give_made_pypi_file(l, arena_fmt(&a, "%s.json", at.p).p, &p->json,
                                 (struct given){.project = p});
    }
    if (rc == 0) {
        rc = give_made_pypi_file(l, arena_fmt(&a, "%s.html", at.p).p, &p->html,
                                 (struct given){.project = p, .html = true});
    }
    for (size_t i = 0; rc == 0 && i < p->files; i++) {
        if (p->file[i].chosen) {
            rc = give_file(l, p, &p->file[i]);
        }
    }
    arena_fini(&a);
    return rc;
}

static int compare_project_names(const struct py_project *a, const struct py_project *b)
{
    return slice_cmp(a->name, b->name);
}

static int write_list(struct py_lister *l, enum page_format format, struct buf *out, struct err *e)
{
    struct py_project *p, *tmp;
    struct page page;
    int rc;

    page_init_own(&page, format, SLICE(""), out->max);
    HASH_ITER(hh, l->by_name, p, tmp)
    {
        if (has_files(p)) {
            page_project(&page, p->name);
        }
    }
    rc = page_finish(&page, out, e);
    page_fini(&page);
    return rc;
}

static int pypi_give_all(struct py_lister *l, struct err *e)
{
    struct arena a = {0};
    struct py_project *p, *tmp;
    int rc;

    HASH_SORT(l->by_name, compare_project_names);
    rc = write_list(l, PAGE_JSON, &l->json, e);
    rc = rc != 0 ? rc : write_list(l, PAGE_HTML, &l->html, e);
    if (rc == 0) {
        rc = give_made_pypi_file(l, arena_fmt(&a, SLICE_FMT "index.json", SLICE_ARG(l->index)).p,
                                 &l->json, (struct given){0});
    }
    if (rc == 0) {
        rc = give_made_pypi_file(l, arena_fmt(&a, SLICE_FMT "index.html", SLICE_ARG(l->index)).p,
                                 &l->html, (struct given){.html = true});
    }
    HASH_ITER(hh, l->by_name, p, tmp)
    {
        if (rc == 0 && has_files(p)) {
            rc = give_project(l, p, e);
        }
    }
    arena_fini(&a);
    return rc;
}

/* --- where the bytes are ---------------------------------------------------------------------- */

static void pypi_source(struct http_engine *g, const struct sync_entry *en, struct source *out)
{
    struct py_lister *l = g->lister_state;
    const struct given *x = &l->given[en->ref >> 8];

    out->whole = true;
    if (x->file == NULL) {
        const struct buf *made = x->project == NULL ? (x->html ? &l->html : &l->json)
                                 : x->html          ? &x->project->html
                                                    : &x->project->json;
        out->bytes = buf_slice(made);
        return;
    }
    if (x->metadata && x->file->meta->bytes.n != 0) {
        out->bytes = buf_slice(&x->file->meta->bytes);
        return;
    }
    out->via = x->project->url;
    out->url = mem_strdup(x->metadata ? pypi_meta_url(x->file, &l->arena).p : x->file->url.p);
}

/* --- what is wanted ---
 *
 * What is asked of whom: each requirement, where it holds, becomes a want of its project.
 */

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
                "dependencies need more than %u projects, or are more than %d levels "
                "deep; raise max_projects",
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

static void pypi_make_dirty(struct py_project *p)
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
        return err_set(e, E_TOOBIG, "%.100s is required by more than %d different requirements",
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
        pypi_say(l, "left out: \"%.200s\" names a URL, which no index lists",
                 arena_cstr(&l->arena, text));
        l->left_out++;
    }
    return rc;
}

/* --- the settings ----------------------------------------------------------------------------- */

static uint64_t all_envs(const struct py_lister *l)
{
    return l->envs == 64 ? UINT64_MAX : ((uint64_t)1 << l->envs) - 1;
}

static int on_requirement_line(void *arg, struct slice text, struct err *e)
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

    pypi_say(l, "a line of the requirements has no meaning for a mirror and is ignored: %.200s",
             arena_cstr(&l->arena, line));
}

/* The environments, and what the settings require. */
static int pypi_require_settings(struct py_lister *l, struct err *e)
{
    const struct sync_conf *c = l->g->site->conf;
    const struct requirements_events ev = {on_requirement_line, on_odd, l};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->python_count; i++) {
        for (size_t k = 0; rc == 0 && k < c->platforms_count; k++) {
            rc = l->envs == PYENVS_MAX ||
                         !pyenv_init(&l->env[l->envs++], c->python[i], c->platforms[k])
                     ? err_set(e, E_CONFIG,
                               "python and platforms make an unsupported environment, or too many")
                     : 0;
        }
    }
    for (size_t i = 0; rc == 0 && i < c->requirements_count; i++) {
        const char *r = c->requirements[i];
        rc = strncmp(r, "file:", 5) == 0 ? requirements_file(r + 5, &ev, e)
                                         : on_requirement_line(l, slice_str(r), e);
    }
    return rc;
}

void pypi_say(const struct py_lister *l, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    l->g->site->log(l->g->site->log_arg, "%s", text);
}

/* Chooses anew, and asks again what was asked before, of more. */
static int choose_project_files(struct py_project *p, struct err *e)
{
    int rc = 0;

    if (!p->read) {
        return 0;
    }
    pypi_choose(p);
    for (size_t i = 0; i < p->files; i++) {
        struct py_file *f = &p->file[i];
        if (f->chosen && f->meta == NULL && p->l->g->site->conf->dependencies) {
            pypi_meta_want(p, f);
        }
    }
    LIST_EACH (&p->metas, it) {
        rc = rc != 0 ? rc : pypi_meta_apply(LIST_ITEM(it, struct py_meta, node), e);
    }
    return rc;
}

/* --- asking ----------------------------------------------------------------------------------- */

static void continue_pypi_listing(struct py_lister *l);

static void end_pypi_listing(struct py_lister *l, int rc, const struct err *why)
{
    if (!l->over) {
        l->over = true;
        http_listed(l->g, rc, why, NULL);
    }
}

void pypi_answered(struct py_lister *l, int rc, const struct err *why)
{
    l->busy--;
    if (rc != 0) {
        end_pypi_listing(l, rc, why);
    } else {
        continue_pypi_listing(l);
    }
}

static void on_project_page(struct doc *d, int rc)
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
            pypi_make_dirty(p);
        }
    } else if (rc == E_NOTFOUND) {
        p->read = p->absent = true;
        rc = 0;
    }
    if (rc != 0) {
        err_prefix(&why, "project %.100s", arena_cstr(&l->arena, p->name));
    }
    doc_free(&p->doc);
    pypi_answered(l, rc, &why);
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
    p->doc = doc_ask(l->g, url.p, accept, PYPI_PAGE_BYTES, on_project_page, p);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void finish_pypi_listing(struct py_lister *l)
{
    struct engine_listed done = {.left_out = l->left_out};
    struct err why = {0};
    int rc;

    l->over = true;
    done.doubt = pypi_doubt(l);
    rc = pypi_give_all(l, &why);
    http_listed(l->g, rc, rc != 0 ? &why : NULL, &done);
}

static void continue_pypi_listing(struct py_lister *l)
{
    while (!l->over && l->busy < l->g->site->parallel) {
        struct err why = {0};
        int rc = 0;
        if (!list_empty(&l->dirty)) {
            rc = choose_project_files(
                LIST_ITEM(list_pop_front(&l->dirty), struct py_project, dirty), &why);
        } else if (!list_empty(&l->unread)) {
            struct py_meta *m = LIST_ITEM(list_pop_front(&l->unread), struct py_meta, node);
            if (pypi_meta_have(m)) {
                rc = pypi_meta_learn(m, &why);
            } else {
                pypi_meta_ask(m);
            }
        } else if (!list_empty(&l->waiting)) {
            ask_page(LIST_ITEM(list_pop_front(&l->waiting), struct py_project, node));
        } else {
            break;
        }
        if (rc != 0) {
            end_pypi_listing(l, rc, &why);
        }
    }
    if (!l->over && l->busy == 0) {
        finish_pypi_listing(l);
    }
}

/* --- the beginning ---------------------------------------------------------------------------- */

static void begin_pypi_listing(struct http_engine *g)
{
    struct py_lister *l = g->lister_state;

    err_clear(&g->why);
    if (pypi_require_settings(l, &g->why) != 0) {
        end_pypi_listing(l, g->why.code == E_NOTFOUND ? E_CONFIG : g->why.code, &g->why);
    } else {
        continue_pypi_listing(l);
    }
}

static void py_start(struct http_engine *g)
{
    struct py_lister *l = NEW(struct py_lister);
    size_t parts = 1;

    g->lister_state = l;
    l->g = g;
    l->index = slice_str(g->site->conf->index);
    l->json = l->html = BUF_INIT(PYPI_PAGE_BYTES);
    list_init(&l->waiting);
    list_init(&l->unread);
    list_init(&l->dirty);
    for (size_t i = 0; i < l->index.n; i++) {
        parts += l->index.p[i] == '/';
    }
    for (l->up = SLICE(""); parts > 0; parts--) {
        l->up = arena_fmt(&l->arena, "../" SLICE_FMT, SLICE_ARG(l->up));
    }
    http_soon(g, begin_pypi_listing);
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
            pypi_meta_free(p->file[i].meta);
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
