/* pypi_give.c - what was chosen, as entries: files, their metadata, and pages that name them with links inside the tree. */
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/sync/http/pypi.h"

enum { PATH_ROOM = 4096 };

static int give(struct py_lister *l, struct sync_entry *en, struct slice path, struct given what)
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

static int give_made(struct py_lister *l, const char *path, const struct buf *made,
                     struct given what)
{
    struct sync_entry en = {.size_bytes = made->n, .digest_known = true};

    digest_of(buf_slice(made), &en.digest);
    return give(l, &en, slice_str(path), what);
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
    int rc = give(l, &en, path, (struct given){.project = p, .file = f});

    if (rc == 0 && f->meta != NULL && f->meta->read && !f->meta->inside) {
        struct sync_entry m = {
            .size_bytes = SYNC_SIZE_UNKNOWN, .digest_known = true, .digest = f->meta->digest};
        rc = give(l, &m, arena_fmt(&a, SLICE_FMT ".metadata", SLICE_ARG(path)),
                  (struct given){.project = p, .file = f, .metadata = true});
    }
    arena_fini(&a);
    return rc;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

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

    rc = rc == 0 ? write_page(p, PAGE_HTML, &p->html, e) : rc;
    if (rc == 0) {
        rc = give_made(l, arena_fmt(&a, "%s.json", at.p).p, &p->json, (struct given){.project = p});
    }
    if (rc == 0) {
        rc = give_made(l, arena_fmt(&a, "%s.html", at.p).p, &p->html,
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

static int by_name(const struct py_project *a, const struct py_project *b)
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

int pypi_give_all(struct py_lister *l, struct err *e)
{
    struct arena a = {0};
    struct py_project *p, *tmp;
    int rc;

    HASH_SORT(l->by_name, by_name);
    rc = write_list(l, PAGE_JSON, &l->json, e);
    rc = rc == 0 ? write_list(l, PAGE_HTML, &l->html, e) : rc;
    if (rc == 0) {
        rc = give_made(l, arena_fmt(&a, SLICE_FMT "index.json", SLICE_ARG(l->index)).p, &l->json,
                       (struct given){0});
    }
    if (rc == 0) {
        rc = give_made(l, arena_fmt(&a, SLICE_FMT "index.html", SLICE_ARG(l->index)).p, &l->html,
                       (struct given){.html = true});
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

/* --- where the bytes are ------------------------------------------------------------------------------------------ */

void pypi_source(struct http_engine *g, const struct sync_entry *en, struct source *out)
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
