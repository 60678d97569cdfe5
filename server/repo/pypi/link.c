#include "server/repo/pypi/link.h"

#include "common/base/endian.h"
#include "common/codec/url.h"
#include "server/repo/plan.h"

enum { URL_BYTES = 16 << 10 };
enum { FILE_ROW = DIGEST_BYTES + 8 };

/* 64 bits: a page that could choose a host with the id of another's would divert that one's files. */
void link_id(struct slice origin, struct slice page_path, char out[LINK_ID + 1])
{
    struct buf text = BUF_INIT(URL_BYTES * 4);
    char hex[DIGEST_HEX + 1];
    struct digest d;

    buf_adds(&text, origin);
    buf_byte(&text, 0);
    buf_adds(&text, page_path);
    CHECK(text.rc == 0);
    digest_of(buf_slice(&text), &d);
    digest_format(&d, hex);
    memcpy(out, hex, LINK_ID);
    out[LINK_ID] = '\0';
    buf_free(&text);
}

void link_row_key(struct buf *out, struct slice repo, struct slice id)
{
    buf_clear(out);
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_adds(out, id);
}

void file_row_key(struct buf *out, struct slice repo, struct slice origin, struct slice file,
                  struct slice id)
{
    link_row_key(out, repo, origin);
    buf_byte(out, 0);
    buf_adds(out, file);
    buf_byte(out, 0);
    buf_adds(out, id);
}

void file_row_encode(const struct file_facts *f, struct buf *out)
{
    buf_add(out, f->digest.b, DIGEST_BYTES);
    buf_be(out, 8, f->size_bytes);
}

bool file_rows_agree(struct slice rows, struct file_facts *out)
{
    if (rows.n == 0 || rows.n % FILE_ROW != 0) {
        return false;
    }
    memcpy(out->digest.b, rows.p, DIGEST_BYTES);
    out->size_bytes = LENGTH_UNKNOWN;
    for (size_t at = 0; at < rows.n; at += FILE_ROW) {
        uint64_t size = be_get(rows.p + at + DIGEST_BYTES, 8);
        if (memcmp(out->digest.b, rows.p + at, DIGEST_BYTES) != 0) {
            return false;
        }
        out->size_bytes = size != LENGTH_UNKNOWN ? size : out->size_bytes;
    }
    return true;
}

/* The page's URL less its path below the repo: the index's root as the origin's redirects made it. */
static struct slice other_root(struct slice url, struct slice path)
{
    url = slice_cut(&url, '?');
    return slice_ends(url, path) ? slice_first(url, url.n - path.n) : SLICE_NONE;
}

void links_init(struct links *l, const struct repo *r, bool only_named, struct slice page_path,
                struct slice page_url, struct batch *rows)
{
    *l = (struct links){.repo = r,
                        .only_named = only_named,
                        .page_path = page_path,
                        .page_url = page_url,
                        .rows = rows,
                        .base = BUF_INIT(URL_BYTES),
                        .up = BUF_INIT(URL_BYTES * 3)};
    if (r != NULL) {
        l->roots[0] = slice_str(origin_url(r->origin));
        l->roots[1] = other_root(page_url, page_path);
    }
    for (size_t i = 0; i < page_path.n; i++) {
        buf_str(&l->up, page_path.p[i] == '/' ? "../" : "");
    }
}

void links_fini(struct links *l)
{
    for (size_t i = 0; i < l->origins; i++) {
        buf_free(&l->origin[i].key);
    }
    buf_free(&l->base);
    buf_free(&l->up);
    arena_fini(&l->arena);
}

void links_reset(struct links *l)
{
    arena_reset(&l->arena);
}

struct slice links_where(const struct links *l)
{
    return l->base.n != 0 ? buf_slice(&l->base) : l->page_url;
}

void links_base(struct links *l, struct slice href)
{
    struct buf whole = BUF_INIT(URL_BYTES);

    if (l->base.n == 0 && url_resolve(l->page_url, href, &whole, NULL) == 0) {
        buf_adds(&l->base, buf_slice(&whole));
    }
    buf_free(&whole);
}

static bool admitted(const struct links *l, struct slice url)
{
    return origin_admits(l->repo->origin, url, l->only_named ? SLICE_NONE : l->page_url, NULL) == 0;
}

/* NULL: not to be reached. The first link to an origin decides for all of this page. */
static const struct link_origin *origin_of(struct links *l, struct slice url)
{
    struct buf key = BUF_INIT(512);
    struct buf row = BUF_INIT(URL_BYTES * 2);
    struct buf row_key = BUF_INIT(512);
    size_t i = 0;

    if (url_origin_key(url, &key, NULL) != 0) {
        buf_free(&key);
        return NULL;
    }
    while (i < l->origins && !slice_eq(buf_slice(&l->origin[i].key), buf_slice(&key))) {
        i++;
    }
    if (i < l->origins || i == ORIGINS_MAX) {
        buf_free(&key);
        return i < l->origins && l->origin[i].admitted ? &l->origin[i] : NULL;
    }
    l->origins++;
    l->origin[i].key = key;
    l->origin[i].admitted = admitted(l, url);
    link_id(buf_slice(&key), l->page_path, l->origin[i].id);
    if (l->origin[i].admitted) {
        link_row_key(&row_key, slice_str(l->repo->name), slice_str(l->origin[i].id));
        buf_adds(&row, buf_slice(&key));
        buf_byte(&row, 0);
        buf_adds(&row, l->page_url);
        batch_put(l->rows, TABLE_ORIGIN, buf_slice(&row_key), buf_slice(&row));
    }
    buf_free(&row);
    buf_free(&row_key);
    return l->origin[i].admitted ? &l->origin[i] : NULL;
}

struct slice link_last_segment(struct slice path)
{
    path.n -= path.n != 0 && path.p[path.n - 1] == '/';
    return slice_from(path, slice_behind(path, '/'));
}

static struct slice decoded(struct links *l, struct slice text)
{
    struct buf plain = BUF_INIT(URL_BYTES);
    struct slice s = url_decode(text, &plain) ? arena_copy(&l->arena, buf_slice(&plain)) : text;

    buf_free(&plain);
    return s;
}

/* Below the index's root: a page of ours. */
static bool read_page(struct links *l, struct slice url, struct link *out)
{
    url = slice_cut(&url, '?');
    for (size_t i = 0; i < ARRAY_LEN(l->roots); i++) {
        struct slice path;
        if (l->roots[i].n == 0 || !slice_starts(url, l->roots[i])) {
            continue;
        }
        if (plan_path(slice_from(url, l->roots[i].n), &l->arena, &path, NULL) != 0) {
            return false;
        }
        out->kind = LINK_PAGE;
        out->name = decoded(l, link_last_segment(path));
        out->child =
            path.n > l->page_path.n && slice_starts(path, l->page_path) &&
            slice_find(slice_first(slice_from(path, l->page_path.n), path.n - l->page_path.n - 1),
                       '/') < 0;
        out->href = plan_url(buf_cstr(&l->up), path, SLICE_NONE, &l->arena);
        return true;
    }
    return false;
}

static bool read_file(struct links *l, struct slice url, const struct url *u, struct link *out)
{
    const struct link_origin *o = origin_of(l, url);
    struct slice path;
    struct slice prefix;

    if (o == NULL || plan_path(slice_from(u->path, 1), &l->arena, &path, NULL) != 0 ||
        path.n == 0) {
        return false;
    }
    out->kind = LINK_FILE;
    memcpy(out->id, o->id, sizeof out->id);
    out->origin = buf_slice(&o->key);
    out->file = plan_key(path, u->query, &l->arena);
    out->name = decoded(l, link_last_segment(path));
    prefix = arena_fmt(&l->arena, SLICE_FMT "+f/%s/", SLICE_ARG(buf_slice(&l->up)), o->id);
    out->href = plan_url(prefix.p, path, u->query, &l->arena);
    return true;
}

void links_read(struct links *l, struct slice href, struct link *out)
{
    struct buf whole = BUF_INIT(URL_BYTES);
    struct slice rest = href;
    struct slice before = slice_cut(&rest, '#');
    struct slice url;
    struct url u;
    bool page;

    *out = (struct link){.fragment = before.n != href.n ? rest : SLICE_NONE};
    if (url_resolve(links_where(l), href, &whole, NULL) != 0 ||
        url_split(buf_slice(&whole), &u, NULL) != 0) {
        l->dropped++;
        goto out;
    }
    url = buf_slice(&whole);
    page = u.path.p[u.path.n - 1] == '/';
    if (page ? !read_page(l, url, out) : !read_file(l, url, &u, out)) {
        *out = (struct link){0};
        l->dropped++;
    }
out:
    buf_free(&whole);
}

void links_note(struct links *l, const struct link *k, struct slice suffix,
                const struct file_facts *f)
{
    struct buf key = BUF_INIT(URL_BYTES * 4);
    struct buf row = BUF_INIT(FILE_ROW);
    struct buf file = BUF_INIT(URL_BYTES * 3);
    struct slice query = k->file;
    struct slice path = slice_cut(&query, '?');

    /* "<path>.metadata?query": the sidecar's name stands before the query (PEP 658) */
    buf_adds(&file, path);
    buf_adds(&file, suffix);
    if (path.n != k->file.n) {
        buf_byte(&file, '?');
        buf_adds(&file, query);
    }
    file_row_key(&key, slice_str(l->repo->name), k->origin, buf_slice(&file), slice_str(k->id));
    file_row_encode(f, &row);
    if (key.rc == 0 && file.rc == 0) {
        batch_put(l->rows, TABLE_ORIGIN, buf_slice(&key), buf_slice(&row));
    }
    buf_free(&key);
    buf_free(&row);
    buf_free(&file);
}
