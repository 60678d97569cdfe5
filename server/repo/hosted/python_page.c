/* python_page.c - the pages of a package index, made from the projects' trees. */
#include <stdlib.h>

#include "common/codec/jread.h"
#include "common/codec/url.h"
#include "common/codec/utf8.h"
#include "server/repo/hosted/python.h"
#include "server/repo/pypi/page.h"
#include "server/repo/python/distribution.h"
#include "server/store/blob.h"
#include "server/store/tree.h"

enum { HREF_BYTES = 4096, ABOUT_BYTES = 32 << 10, VERSION_BYTES = 1024 };

struct file { /* a distribution, and what stands beside it */
    struct slice name;
    uint64_t size_bytes;
    struct digest digest, metadata, about, yanked;
    bool has_metadata, has_about, has_asc, is_yanked;
    struct distribution dist; /* with no version: parsed in vain */
    bool parsed;
};

struct project {
    struct store *s;
    struct arena arena;
    struct slice name;
    struct file *file;
    size_t count, room;
};

/* --- what the tree has ------------------------------------------------------------------------ */

/* What is beside a file comes behind it, and few others stand between. */
static struct file *file_of(struct project *p, struct slice name)
{
    for (size_t i = p->count; i > 0; i--) {
        if (slice_eq(p->file[i - 1].name, name)) {
            return &p->file[i - 1];
        }
        if (!slice_starts(name, p->file[i - 1].name) && slice_cmp(p->file[i - 1].name, name) < 0) {
            break;
        }
    }
    return NULL;
}

static void add_beside(struct project *p, struct slice path, const struct digest *d)
{
    static const struct {
        struct slice end;
    } ends[] = {{{".about", 6}}, {{".metadata", 9}}, {{".asc", 4}}, {{".yanked", 7}}};

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct file *f = slice_ends(path, ends[i].end)
                             ? file_of(p, slice_first(path, path.n - ends[i].end.n))
                             : NULL;
        if (f != NULL && i == 0) {
            f->has_about = true;
            f->about = *d;
        } else if (f != NULL && i == 1) {
            f->has_metadata = true;
            f->metadata = *d;
        } else if (f != NULL && i == 2) {
            f->has_asc = true;
        } else if (f != NULL) {
            f->is_yanked = true;
            f->yanked = *d;
        }
    }
}

static int on_project_entry(void *arg, const struct entry *en)
{
    struct project *p = arg;
    struct file *f;

    if (en->type != ENTRY_FILE || slice_find(en->path, '/') >= 0) {
        return 0;
    }
    if (!python_is_file(en->path)) {
        add_beside(p, en->path, &en->digest);
        return 0;
    }
    if (p->count == p->room) {
        p->room = p->room != 0 ? 2 * p->room : 64;
        p->file = reallocarray(p->file, p->room, sizeof *p->file);
        CHECK(p->file != NULL);
    }
    f = &p->file[p->count++];
    *f = (struct file){.name = arena_copy(&p->arena, en->path),
                       .size_bytes = en->size_bytes,
                       .digest = en->digest};
    f->parsed = distribution_parse(f->name, p->name, &p->arena, &f->dist);
    return 0;
}

static int by_version(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    int c = pyversion_cmp(&x->dist.version, &y->dist.version);

    return c != 0 ? c : slice_cmp(x->name, y->name);
}

/* --- a page of files -------------------------------------------------------------------------- */

/* What no page may hold is left out: a reason is whatever somebody has sent. */
static struct slice text_of(struct project *p, const struct digest *d)
{
    struct buf raw = BUF_INIT(ABOUT_BYTES), clean = BUF_INIT(4 * PYTHON_WHY_MAX);
    struct slice text = SLICE("");
    size_t used;

    if (blob_read_whole(p->s, d, &raw, NULL) == 0 && raw.n <= PYTHON_WHY_MAX) {
        (void)utf8_clean(slice_trim(buf_slice(&raw)), false, &clean, &used);
        for (size_t i = 0; i < clean.n; i++) {
            clean.p[i] = (uint8_t)clean.p[i] < ' ' ? ' ' : clean.p[i];
        }
        text = arena_copy(&p->arena, slice_trim(buf_slice(&clean)));
    }
    buf_free(&raw);
    buf_free(&clean);
    return text;
}

static void read_about(struct project *p, const struct file *f, struct page_file *out)
{
    struct buf raw = BUF_INIT(ABOUT_BYTES);
    json_t *o = NULL;

    if (f->has_about && blob_read_whole(p->s, &f->about, &raw, NULL) == 0) {
        o = json_loadb(raw.p, raw.n, 0, NULL);
    }
    if (jread_text(o, "requires-python").n != 0) {
        out->requires_python = arena_copy(&p->arena, jread_text(o, "requires-python"));
    }
    if (jread_text(o, "upload-time").n != 0) {
        out->upload_time = arena_copy(&p->arena, jread_text(o, "upload-time"));
    }
    json_decref(o);
    buf_free(&raw);
}

static void add_python_page_file(struct project *p, struct page *page, const struct file *f)
{
    struct buf href = BUF_INIT(HREF_BYTES);
    char hex[DIGEST_HEX + 1], meta[DIGEST_HEX + 8] = "sha256=";
    struct page_file out = {
        .size_bytes = f->size_bytes, .hash_name = SLICE("sha256"), .yanked = f->is_yanked};

    digest_format(&f->digest, hex);
    out.hash = slice_str(hex);
    if (f->has_metadata) {
        digest_format(&f->metadata, meta + 7);
        out.metadata = slice_str(meta);
    }
    if (f->has_asc) {
        out.gpg_sig = SLICE("true");
    }
    if (f->is_yanked) {
        out.yanked_why = text_of(p, &f->yanked);
    }
    read_about(p, f, &out);
    buf_str(&href, "./");
    url_encode(f->name, &href);
    page_add(page, &out, buf_slice(&href), f->name);
    buf_free(&href);
}

static void write_project_files(struct project *p, struct page *page)
{
    const struct file *before = NULL;

    for (size_t i = 0; i < p->count; i++) {
        const struct file *f = &p->file[i];
        if (before == NULL || pyversion_cmp(&before->dist.version, &f->dist.version) != 0) {
            struct buf v = BUF_INIT(VERSION_BYTES);
            pyversion_write(&f->dist.version, &v);
            page_version(page, buf_slice(&v));
            buf_free(&v);
        }
        before = f;
        add_python_page_file(p, page, f);
    }
}

/* Files from before a name's owner was ours: no distributions of this project. */
static void drop_others(struct project *p)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->count; i++) {
        if (p->file[i].parsed) {
            p->file[kept++] = p->file[i];
        }
    }
    p->count = kept;
}

static int list_project(struct store *s, const struct plan *pl, struct page *page, struct err *e)
{
    struct project p = {.s = s, .name = page->name};
    int rc = tree_walk(s, &pl->snap.root, SLICE(""), SLICE_NONE, on_project_entry, &p, e);

    drop_others(&p);
    if (rc == 0 && p.count == 0) {
        rc = err_set(e, E_NOTFOUND, "this project has no files here");
    } else if (rc == 0) {
        qsort(p.file, p.count, sizeof *p.file, by_version);
        write_project_files(&p, page);
    }
    free(p.file);
    arena_fini(&p.arena);
    return rc;
}

/* --- the projects ----------------------------------------------------------------------------- */

struct projects {
    struct page *page;
    const struct repo *r;
    const struct listing_sight *sight;
};

static int on_project_tree(void *arg, struct slice name, const struct snap *sn)
{
    struct projects *l = arg;
    struct buf subject = BUF_INIT(HREF_BYTES);
    bool seen = python_owns(name) && sn->entries != 0;

    if (seen && l->sight != NULL) {
        buf_addf(&subject, "%s/" SLICE_FMT "/", l->r->name, SLICE_ARG(name));
        seen = subject.rc == 0 && l->sight->sees(l->sight->arg, buf_slice(&subject));
    }
    if (seen) {
        page_project(l->page, slice_from(name, 7));
    }
    buf_free(&subject);
    return 0;
}

int python_listing(struct store *s, const struct repo *r, const struct plan *p,
                   const struct listing_sight *sight, struct listing_out *out, struct err *e)
{
    enum page_format f = page_format_named(p->text);
    bool one = p->form == LIST_PYTHON_PROJECT;
    struct page page;
    int rc;

    page_init_own(&page, f, one ? slice_from(p->name, 7) : SLICE(""), out->body->max);
    if (one) {
        rc = list_project(s, p, &page, e);
    } else {
        struct projects all = {&page, r, sight};
        rc = head_list(s, slice_str(r->name), on_project_tree, &all, e);
    }
    rc = rc != 0 ? rc : page_finish(&page, out->body, e);
    out->content_type = page_format_type(f);
    page_fini(&page);
    return rc;
}
