/* profile.c - a tree of wheels' gate: what the pages below simple/ link to inside the tree is
 * there, with the digest that the link says. Links that begin at a host, or at its root, lead out
 * of the tree wherever it is served: they are counted. */
#include "common/codec/url.h"
#include "server/repo/pypi/page.h"
#include "server/sync/closure.h"

enum { PAGE_BYTES = 256 << 20, PATH_ROOM = 16 << 10 };
/* Links are relative to the page: what host it has is nobody's. */
static const char place[] = "http://tree.invalid/";

struct reading {
    struct closure *x;
    struct slice index;
    struct page page;
    struct buf whole, path;
    int rc;
    struct err *e;
};

static bool in_simple(struct slice path)
{
    return slice_starts(path, SLICE("simple/")) || memmem(path.p, path.n, "/simple/", 8) != NULL;
}

static bool says_json(struct slice name)
{
    return slice_eqs(name, "index.json") || slice_eqs(name, "index.v1_json");
}

static bool is_page(struct slice path)
{
    struct slice name = closure_name_of(path, NULL);

    return in_simple(path) &&
           (says_json(name) || slice_eqs(name, "index.html") || slice_eqs(name, "index.v1_html"));
}

/* A page of pages comes last. */
static unsigned pypi_profile_rank(struct slice path)
{
    struct slice folder;

    if (!is_page(path)) {
        return 0;
    }
    (void)closure_name_of(path, &folder);
    return slice_eqs(folder, "simple/") || slice_ends(folder, SLICE("/simple/")) ? 2 : 1;
}

/* False: it leads out of the tree, or to another page. */
static bool path_of_pypi_href(struct reading *r, struct slice href)
{
    struct url to;

    buf_clear(&r->whole);
    buf_clear(&r->path);
    if (slice_starts(href, SLICE("/")) ||
        url_resolve(links_where(&r->page.links), href, &r->whole, NULL) != 0 ||
        !slice_starts(buf_slice(&r->whole), slice_str(place)) ||
        url_split(buf_slice(&r->whole), &to, NULL) != 0 ||
        !url_decode(slice_from(to.path, 1), &r->path)) {
        closure_report(r->x)->unread++;
        return false;
    }
    return r->path.n != 0 && r->path.p[r->path.n - 1] != '/';
}

static void on_pypi_closure_file(void *arg, const struct page_file *f)
{
    struct reading *r = arg;
    struct slice href = f->href, kind = f->hash_name, hash = f->hash;
    struct slice fragment = href;
    struct sum sum = {0};

    if (r->rc != 0 || f->href.p == NULL) {
        return;
    }
    href = slice_cut(&fragment, '#');
    if (hash.p == NULL) {
        hash = slice_cut(&fragment, '&');
        kind = slice_cut(&hash, '=');
    }
    if (!path_of_pypi_href(r, href)) {
        return;
    }
    (void)!sum_parse(kind, hash,
                     &sum); /* of a kind that is not known: no more than that it is there */
    r->rc = closure_names(r->x, r->index, buf_slice(&r->path), f->size_bytes, &sum, r->e);
}

static int check_page(struct closure *x, const struct closure_file *f, struct err *e)
{
    struct reading r = {.x = x,
                        .index = f->path,
                        .whole = BUF_INIT(2 * PATH_ROOM),
                        .path = BUF_INIT(PATH_ROOM),
                        .e = e};
    struct buf text = BUF_INIT(PAGE_BYTES), url = BUF_INIT(2 * PATH_ROOM);
    int rc = pieces_load(closure_store(x), &f->digest, &text, e);

    buf_str(&url, place);
    url_encode_path(f->path, &url);
    page_init_reported(&r.page, buf_slice(&url), on_pypi_closure_file, &r);
    if (rc == 0) {
        rc = says_json(closure_name_of(f->path, NULL))
                 ? page_read_json(&r.page, buf_slice(&text), e)
                 : page_read_html(&r.page, buf_slice(&text), e);
    }
    page_fini(&r.page);
    buf_free(&text);
    buf_free(&url);
    buf_free(&r.whole);
    buf_free(&r.path);
    closure_report(x)->indexes += rc == 0 && r.rc == 0;
    if (rc == E_PROTOCOL) {
        rc = E_INVALID; /* it is read again, as all indexes that are broken */
    }
    return rc != 0 ? rc : r.rc;
}

static int check_pypi_closure(struct closure *x, struct err *e)
{
    return closure_each(x, is_page, check_page, e);
}

const struct profile profile_pypi = {"pypi", pypi_profile_rank, check_pypi_closure};
