/* pypi_choose.c - which files of a project somebody needs: for every requirement and every
 * environment the newest versions that have something to install there. */
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/sync/http/pypi.h"

enum { FILES_MAX = 200000, MICRO_HIGH = 99 };

/* --- the page --------------------------------------------------------------------------------- */

struct reading {
    struct py_project *p;
    const struct page *page;
    size_t room;
    bool too_many;
};

/* It becomes a path, and a part of a URL. */
static bool name_fine(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum && memchr("._-+!~", c, 6) == NULL) {
            return false;
        }
    }
    return name.n != 0;
}

/* Python versions that it says it is for: the micro that nobody knows is a low or a high one. */
static bool python_fine(const struct py_file *f, const struct pyenv *env)
{
    for (unsigned i = 0; i < 2; i++) {
        struct pyversion v = {.part = {3, env->minor, i == 0 ? 0 : MICRO_HIGH}, .parts = 3};
        v.local = SLICE("");
        if (pyspecs_hold(&f->pythons, &v, SLICE(""))) {
            return true;
        }
    }
    return false;
}

static uint64_t fits_where(const struct py_lister *l, const struct py_file *f)
{
    uint64_t out = 0;

    for (size_t i = 0; i < l->envs; i++) {
        bool yes = python_fine(f, &l->env[i]) &&
                   (!f->dist.wheel || distribution_fits(&f->dist, &l->env[i]));
        out |= (uint64_t)yes << i;
    }
    return out;
}

/* "sha256=<hex>" behind the '#', as HTML has it. */
static struct slice sha256_of(const struct page_file *pf)
{
    struct slice fragment = pf->href;
    size_t before = slice_cut(&fragment, '#').n;

    if (pf->hash.p != NULL) {
        return slice_eqs(pf->hash_name, "sha256") ? pf->hash : SLICE_NONE;
    }
    return before < pf->href.n && slice_starts(fragment, SLICE("sha256=")) ? slice_from(fragment, 7)
                                                                           : SLICE_NONE;
}

/* Where it leads, and the last part of that; p == NULL: no file. */
static struct slice url_of(struct reading *r, struct slice href, struct slice *name)
{
    struct arena *a = &r->p->l->arena;
    struct buf whole = BUF_INIT(16384), plain = BUF_INIT(4096);
    struct slice out = SLICE_NONE;
    struct url u;
    size_t n;

    if (url_resolve(links_where(&r->page->links), href, &whole, NULL) == 0 &&
        url_split(buf_slice(&whole), &u, NULL) == 0) {
        n = slice_behind(u.path, '/');
        if (n < u.path.n && url_decode(slice_from(u.path, n), &plain)) {
            *name = arena_copy(a, buf_slice(&plain));
            out = arena_fmt(a, SLICE_FMT, SLICE_ARG(buf_slice(&whole)));
        }
    }
    buf_free(&whole);
    buf_free(&plain);
    return out;
}

/* What the rules leave out is not there for any choice: another file or version may do. */
static bool is_wanted_release(const struct py_project *p, struct slice name, uint64_t size_bytes)
{
    struct arena a = {0};
    struct slice path = arena_fmt(&a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(p->name), SLICE_ARG(name));
    bool yes =
        file_filter_wants_below(p->l->g->site->file_filter, path,
                                size_bytes != LENGTH_UNKNOWN ? size_bytes : SYNC_SIZE_UNKNOWN);

    arena_fini(&a);
    return yes;
}

static void on_pypi_choice_file(void *arg, const struct page_file *pf)
{
    struct reading *r = arg;
    struct slice name = SLICE("");
    struct py_project *p = r->p;
    struct arena *a = &p->l->arena;
    struct py_file f = {.size_bytes = pf->size_bytes, .yanked = pf->yanked};

    f.url = url_of(r, pf->href, &name);
    if (f.url.p == NULL || !name_fine(name) || !distribution_parse(name, p->name, a, &f.dist)) {
        return; /* eggs, installers, signatures: nothing that is installed today */
    }
    if (!is_wanted_release(p, name, pf->size_bytes)) {
        return;
    }
    r->too_many = r->too_many || p->files == FILES_MAX;
    if (r->too_many) {
        return;
    }
    f.digest_known = digest_parse(sha256_of(pf), &f.digest);
    f.name = name;
    f.requires_python = arena_copy_opt(a, pf->requires_python);
    f.upload_time = arena_copy_opt(a, pf->upload_time);
    f.metadata = arena_copy_opt(a, pf->metadata);
    f.yanked_why = arena_copy_opt(a, pf->yanked_why);
    if (f.requires_python.p == NULL || pyspecs_parse(f.requires_python, a, &f.pythons, NULL) != 0) {
        f.pythons = (struct pyspecs){0}; /* as pip has it: what cannot be read forbids nothing */
    }
    f.fits = fits_where(p->l, &f);
    if (p->files == r->room) {
        r->room = r->room != 0 ? 2 * r->room : 64;
        p->file = realloc(p->file, r->room * sizeof p->file[0]);
        CHECK(p->file != NULL);
    }
    p->file[p->files++] = f;
}

static int newest_first(const void *a, const void *b)
{
    const struct py_file *x = a, *y = b;
    int c = pyversion_cmp(&y->dist.version, &x->dist.version);

    return c != 0 ? c : slice_cmp(x->name, y->name);
}

static bool is_json(struct slice doc, const char *type)
{
    if (strstr(type, "json") != NULL || strstr(type, "html") != NULL) {
        return strstr(type, "json") != NULL;
    }
    while (doc.n > 0 && (doc.p[0] == ' ' || doc.p[0] == '\n' || doc.p[0] == '\r')) {
        doc = slice_from(doc, 1);
    }
    return doc.n > 0 && doc.p[0] == '{';
}

int pypi_read_page(struct py_project *p, struct slice doc, const char *content_type, struct err *e)
{
    struct page page;
    struct reading r = {.p = p, .page = &page};
    size_t n = 0;
    int rc;

    page_init_reported(&page, p->url, on_pypi_choice_file, &r);
    rc = is_json(doc, content_type) ? page_read_json(&page, doc, e) : page_read_html(&page, doc, e);
    page_fini(&page);
    if (rc == 0 && r.too_many) {
        rc = err_set(e, E_TOOBIG, "its page lists more than %d files", FILES_MAX);
    }
    if (p->files > 1) {
        qsort(p->file, p->files, sizeof p->file[0], newest_first);
    }
    for (size_t i = 0; i < p->files; i++) { /* a name once */
        if (n == 0 || !slice_eq(p->file[n - 1].name, p->file[i].name)) {
            p->file[n++] = p->file[i];
        }
    }
    p->files = n;
    return rc;
}

/* --- the choice ------------------------------------------------------------------------------- */

enum policy { SDIST_NEVER, SDIST_MISSING, SDIST_ALWAYS };

struct choice {
    struct py_project *p;
    const struct pyspecs *specs; /* one want's, or NULL: all of them at once */
    uint64_t envs;               /* of the wants that count */
    enum policy sdists;
    bool all_files;
    uint32_t newest; /* 0: all */
};

static enum policy policy_of(const struct sync_conf *c)
{
    return strcmp(c->sdists, "never") == 0    ? SDIST_NEVER
           : strcmp(c->sdists, "always") == 0 ? SDIST_ALWAYS
                                              : SDIST_MISSING;
}

static bool choice_allows_file(const struct choice *x, const struct py_file *f, size_t env)
{
    if (x->specs != NULL) {
        return pyspecs_hold(x->specs, &f->dist.version, f->dist.version_text) &&
               (!f->yanked || pyspecs_pin(x->specs));
    }
    for (size_t i = 0; i < x->p->wants; i++) {
        const struct py_want *w = &x->p->want[i];
        if ((w->envs >> env & 1) != 0 &&
            (!pyspecs_hold(&w->specs, &f->dist.version, f->dist.version_text) ||
             (f->yanked && !pyspecs_pin(&w->specs)))) {
            return false;
        }
    }
    return true;
}

static bool names_pre(const struct choice *x)
{
    for (size_t i = 0; x->specs == NULL && i < x->p->wants; i++) {
        if (pyspecs_name_pre(&x->p->want[i].specs)) {
            return true;
        }
    }
    return x->specs != NULL && pyspecs_name_pre(x->specs);
}

static size_t version_end(const struct py_project *p, size_t from)
{
    size_t i = from + 1;

    while (i < p->files &&
           pyversion_cmp(&p->file[i].dist.version, &p->file[from].dist.version) == 0) {
        i++;
    }
    return i;
}

/* A version's files for one environment; false: there is none. */
static bool choose_version(struct choice *x, size_t from, size_t to, size_t env)
{
    bool wheel = false, source = false;

    for (size_t i = from; i < to; i++) {
        struct py_file *f = &x->p->file[i];
        if ((f->fits >> env & 1) != 0 && choice_allows_file(x, f, env)) {
            wheel = wheel || f->dist.wheel;
            source = source || !f->dist.wheel;
        }
    }
    source = source && (x->sdists == SDIST_ALWAYS || (x->sdists == SDIST_MISSING && !wheel));
    for (size_t i = from; i < to && (wheel || source); i++) {
        struct py_file *f = &x->p->file[i];
        bool fits = (f->fits >> env & 1) != 0;
        if (choice_allows_file(x, f, env) &&
            (x->all_files ? f->dist.wheel || x->sdists != SDIST_NEVER
                          : fits && (f->dist.wheel ? wheel : source))) {
            f->chosen = true;
        }
    }
    return wheel || source;
}

/* Final versions, unless others are named, or there are none. */
static bool choose_for(struct choice *x, size_t env)
{
    bool pre = names_pre(x);

    for (int pass = 0; pass < 2; pass++) {
        uint32_t n = 0;
        for (size_t i = 0, next; i < x->p->files && (x->newest == 0 || n < x->newest); i = next) {
            next = version_end(x->p, i);
            if (pre || !pyversion_is_pre(&x->p->file[i].dist.version)) {
                n += choose_version(x, i, next, env);
            }
        }
        if (n != 0 || pre) {
            return n != 0;
        }
        pre = true;
    }
    return false;
}

void pypi_choose(struct py_project *p)
{
    const struct sync_conf *c = p->l->g->site->conf;
    struct choice x = {.p = p,
                       .sdists = policy_of(c),
                       .all_files = strcmp(c->files, "all") == 0,
                       .newest = c->newest};

    for (size_t env = 0; env < p->l->envs; env++) {
        for (size_t i = 0; i < p->wants; i++) {
            struct py_want *w = &p->want[i];
            if ((w->envs >> env & 1) != 0) {
                x.specs = &w->specs;
                w->satisfied |= (uint64_t)choose_for(&x, env) << env;
            }
        }
        if (p->wants > 1 && (p->envs >> env & 1) != 0) {
            x.specs = NULL;
            (void)choose_for(&x, env);
        }
    }
}

const struct py_want *pypi_unsatisfied(const struct py_project *p)
{
    for (size_t i = 0; i < p->wants; i++) {
        if ((p->want[i].envs & p->want[i].satisfied) == 0) {
            return &p->want[i];
        }
    }
    return NULL;
}
