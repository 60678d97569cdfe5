/* pypi.c - from requirements to all that installing them takes: a page for each project that is asked for, metadata for each file
 * that is chosen, and what that requires in its turn, until nobody asks for more. */
#include "server/sync/http/pypi.h"

#include <stdio.h>
#include <stdlib.h>

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
static int settle(struct py_project *p, struct err *e)
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
        if (rc == 0) {
            rc = pypi_meta_apply(LIST_ITEM(it, struct py_meta, node), e);
        }
    }
    return rc;
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

void pypi_answered(struct py_lister *l, int rc, const struct err *why)
{
    l->busy--;
    if (rc != 0) {
        end(l, rc, why);
    } else {
        go_on(l);
    }
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
    p->doc = doc_ask(l->g, url.p, accept, PYPI_PAGE_BYTES, on_page, p);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void finish(struct py_lister *l)
{
    struct engine_listed done = {.left_out = l->left_out};
    struct err why = {0};
    int rc;

    l->over = true;
    done.doubt = pypi_doubt(l);
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
            end(l, rc, &why);
        }
    }
    if (!l->over && l->busy == 0) {
        finish(l);
    }
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static void begin(struct http_engine *g)
{
    struct py_lister *l = g->lister_state;

    err_clear(&g->why);
    if (pypi_require_settings(l, &g->why) != 0) {
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
    http_soon(g, begin);
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
