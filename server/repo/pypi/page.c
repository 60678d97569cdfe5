#include "server/repo/pypi/page.h"

#include <stdio.h>

#include "common/base/endian.h"
#include "common/codec/html.h"
#include "common/codec/url.h"
#include "server/repo/plan.h"

enum { URL_BYTES = 16 << 10 };
enum { FILE_ROW = DIGEST_BYTES + 8 };

/* --- rows of links ---------------------------------------------------------------------------- */

/* 64 bits: a page that could choose a host with the id of another's would divert that one's
 * files. */
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

void file_row_encode(const struct file_results *f, struct buf *out)
{
    buf_add(out, f->digest.b, DIGEST_BYTES);
    buf_be(out, 8, f->size_bytes);
}

bool file_rows_agree(struct slice rows, struct file_results *out)
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

/* --- where links lead ------------------------------------------------------------------------- */

/* The page's URL less its path below the repo: the index's root as the origin's redirects made
 * it. */
static struct slice other_root(struct slice url, struct slice path)
{
    url = slice_cut(&url, '?');
    return slice_ends(url, path) ? slice_first(url, url.n - path.n) : SLICE_NONE;
}

/* page_path: canonical, below the repo; page_url: where its bytes came from. r == NULL: for
 * links_base() and links_where() alone, no other argument but page_url counts. */
static void links_init(struct links *l, const struct repo *r, bool only_named,
                       struct slice page_path, struct slice page_url, struct batch *rows)
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

static void links_fini(struct links *l)
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

static bool url_is_admitted(const struct links *l, struct slice url)
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
    l->origin[i].admitted = url_is_admitted(l, url);
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

static struct slice last_segment(struct slice path)
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
        out->name = decoded(l, last_segment(path));
        out->child =
            path.n > l->page_path.n && slice_starts(path, l->page_path) &&
            slice_find(slice_first(slice_from(path, l->page_path.n), path.n - l->page_path.n - 1),
                       '/') < 0;
        out->href = plan_url(buf_cstr(&l->up), path, SLICE_NONE, &l->arena);
        return true;
    }
    return false;
}

static bool read_page_link(struct links *l, struct slice url, const struct url *u, struct link *out)
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
    out->name = decoded(l, last_segment(path));
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
    if (page ? !read_page(l, url, out) : !read_page_link(l, url, &u, out)) {
        *out = (struct link){0};
        l->dropped++;
    }
out:
    buf_free(&whole);
}

/* Remembers what the page says of a file; suffix: "" or ".metadata". */
static void links_note(struct links *l, const struct link *k, struct slice suffix,
                       const struct file_results *f)
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

/* --- a page ----------------------------------------------------------------------------------- */

void page_init(struct page *p, enum page_format f, const struct repo *r, bool only_named,
               struct slice path, struct slice url, struct batch *rows, size_t max_bytes)
{
    *p = (struct page){.format = f,
                       .name = last_segment(path),
                       .list = slice_eq(path, SLICE("simple/")),
                       .files = BUF_INIT(max_bytes),
                       .projects = BUF_INIT(max_bytes),
                       .metas = BUF_INIT(64 << 10),
                       .tracks = BUF_INIT(64 << 10),
                       .alternates = BUF_INIT(64 << 10)};
    links_init(&p->links, r, only_named, path, url, rows);
}

void page_init_reported(struct page *p, struct slice url,
                        void (*tell)(void *arg, const struct page_file *f), void *arg)
{
    *p = (struct page){.format = PAGE_JSON,
                       .metas = BUF_INIT(0),
                       .tracks = BUF_INIT(64 << 10),
                       .alternates = BUF_INIT(64 << 10),
                       .tell = tell,
                       .tell_arg = arg};
    links_init(&p->links, NULL, false, SLICE(""), url, NULL);
}

void page_init_own(struct page *p, enum page_format f, struct slice name, size_t max_bytes)
{
    *p = (struct page){.format = f,
                       .own = true,
                       .name = name,
                       .list = name.n == 0,
                       .version = "1.1",
                       .files = BUF_INIT(max_bytes),
                       .projects = BUF_INIT(max_bytes),
                       .versions = BUF_INIT(max_bytes)};
    links_init(&p->links, NULL, false, SLICE(""), SLICE(""), NULL);
}

void page_fini(struct page *p)
{
    links_fini(&p->links);
    buf_free(&p->versions);
    buf_free(&p->files);
    buf_free(&p->projects);
    buf_free(&p->metas);
    buf_free(&p->tracks);
    buf_free(&p->alternates);
}

/* --- what pages say of files --- */

static bool hex_text(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) {
            return false;
        }
    }
    return s.n != 0;
}

/* "sha256=<hex>" of a fragment or attribute, up to a '&'. */
static bool split_hash(struct slice text, struct slice *name, struct slice *hash)
{
    *hash = slice_cut(&text, '&');
    *name = slice_cut(hash, '=');
    return name->n != 0 && name->n <= 16 && hex_text(*hash);
}

void page_note(struct page *p, const struct link *k, struct slice hash_name, struct slice hash,
               struct slice metadata, uint64_t size_bytes)
{
    struct file_results f = {.size_bytes = size_bytes};
    struct file_results m = {.size_bytes = LENGTH_UNKNOWN};
    struct slice name;
    struct slice value;

    if (slice_eq(hash_name, SLICE("sha256")) && digest_parse(hash, &f.digest)) {
        links_note(&p->links, k, SLICE(""), &f);
    }
    if (split_hash(metadata, &name, &value) && slice_eq(name, SLICE("sha256")) &&
        digest_parse(value, &m.digest)) {
        links_note(&p->links, k, SLICE(".metadata"), &m);
    }
}

/* --- HTML --- */

static void attribute(struct buf *b, const char *name, struct slice value)
{
    if (value.p != NULL) {
        buf_addf(b, " %s=\"", name);
        html_escape(value, b);
        buf_byte(b, '"');
    }
}

static void html_file(struct page *p, const struct page_file *f, const struct link *k)
{
    struct buf *b = &p->files;

    buf_str(b, "<a href=\"");
    html_escape(k->href, b);
    if (f->hash.p != NULL) {
        buf_byte(b, '#');
        html_escape(f->hash_name, b);
        buf_byte(b, '=');
        html_escape(f->hash, b);
    }
    buf_byte(b, '"');
    attribute(b, "data-requires-python", f->requires_python);
    attribute(b, "data-yanked",
              f->yanked ? (f->yanked_why.p != NULL ? f->yanked_why : SLICE("")) : SLICE_NONE);
    attribute(b, "data-core-metadata", f->metadata);
    attribute(b, "data-dist-info-metadata", f->metadata); /* PEP 714: old clients know this name */
    attribute(b, "data-gpg-sig", f->gpg_sig);
    buf_adds(b, f->more);
    buf_byte(b, '>');
    html_escape(k->name, b);
    buf_str(b, "</a><br>\n");
}

static void html_project(struct page *p, struct slice href, struct slice text)
{
    buf_str(&p->projects, "<a href=\"");
    html_escape(href, &p->projects);
    buf_str(&p->projects, "\">");
    html_escape(text, &p->projects);
    buf_str(&p->projects, "</a><br>\n");
}

/* --- JSON --- */

static void json_member(struct buf *out, const char *key, struct slice value)
{
    if (value.p != NULL) {
        jwrite_text(out, key, value);
    }
}

static void json_metadata(struct buf *out, const char *key, struct slice metadata)
{
    struct slice name;
    struct slice hash;

    if (split_hash(metadata, &name, &hash)) {
        jwrite_open(out, key, '{');
        jwrite_key(out, name);
        jwrite_text(out, NULL, hash);
        jwrite_close(out, '}');
    } else {
        jwrite_bool(out, key, true);
    }
}

static void json_file(struct page *p, const struct page_file *f, const struct link *k)
{
    struct buf *out = &p->files;

    jwrite_open(out, NULL, '{');
    json_member(out, "filename", k->name);
    json_member(out, "url", k->href);
    jwrite_open(out, "hashes", '{');
    if (f->hash.p != NULL) {
        jwrite_key(out, f->hash_name);
        jwrite_text(out, NULL, f->hash);
    }
    jwrite_close(out, '}');
    json_member(out, "requires-python", f->requires_python);
    json_member(out, "upload-time", f->upload_time);
    if (f->metadata.p != NULL) {
        json_metadata(out, "core-metadata", f->metadata);
        json_metadata(out, "dist-info-metadata", f->metadata);
    }
    if (p->own && f->size_bytes != LENGTH_UNKNOWN) {
        jwrite_u64(out, "size", f->size_bytes);
    }
    if (f->gpg_sig.p != NULL) {
        jwrite_bool(out, "gpg-sig", slice_eq(f->gpg_sig, SLICE("true")));
    }
    if (f->yanked && f->yanked_why.n != 0) {
        jwrite_text(out, "yanked", f->yanked_why);
    } else {
        jwrite_bool(out, "yanked", f->yanked);
    }
    jwrite_close(out, '}');
}

/* --- what the readers tell --- */

static void add_pypi_page_file(struct page *p, const struct page_file *f, const struct link *k)
{
    struct page_file full = *f;

    /* A fragment that is no hash is an old client's affair (#egg=): it does not travel. */
    if (full.hash.p == NULL && k->fragment.p != NULL &&
        !split_hash(k->fragment, &full.hash_name, &full.hash)) {
        full.hash = SLICE_NONE;
    }
    p->files_count++;
    if (p->own) {
        (p->format == PAGE_JSON ? json_file : html_file)(p, &full, k);
        return;
    }
    page_note(p, k, full.hash_name, full.hash, full.metadata, full.size_bytes);
    if (p->format == PAGE_JSON) {
        json_file(p, &full, k);
    } else {
        html_file(p, &full, k);
    }
}

void page_add(struct page *p, const struct page_file *f, struct slice href, struct slice name)
{
    struct link k = {.kind = LINK_FILE, .href = href, .name = name, .fragment = SLICE_NONE};

    add_pypi_page_file(p, f, &k);
}

void page_version(struct page *p, struct slice version)
{
    jwrite_text(&p->versions, NULL, version);
}

void page_file(struct page *p, const struct page_file *f)
{
    struct link k;

    if (p->tell != NULL) {
        p->tell(p->tell_arg, f);
        return;
    }
    links_read(&p->links, f->href, &k);
    if (k.kind == LINK_FILE) {
        add_pypi_page_file(p, f, &k);
    }
    links_reset(&p->links);
}

static void json_project(struct page *p, struct slice name)
{
    jwrite_open(&p->projects, NULL, '{');
    json_member(&p->projects, "name", name);
    jwrite_close(&p->projects, '}');
}

void page_project(struct page *p, struct slice name)
{
    struct buf href = BUF_INIT(1024);

    if (p->tell != NULL) {
        return;
    }
    if (p->format == PAGE_JSON) {
        json_project(p, name);
    } else {
        buf_str(&href, "./");
        url_encode(name, &href);
        buf_byte(&href, '/');
        html_project(p, buf_slice(&href), name);
    }
    buf_free(&href);
}

void page_anchor(struct page *p, const struct page_file *f, struct slice text)
{
    struct link k;
    struct slice label = slice_trim(text);

    if (p->tell != NULL) {
        p->tell(p->tell_arg, f);
        return;
    }
    links_read(&p->links, f->href, &k);
    if (k.kind == LINK_FILE && !p->list) {
        add_pypi_page_file(p, f, &k);
    } else if (k.kind == LINK_PAGE && k.child) {
        label = label.n != 0 ? label : k.name;
        if (p->format == PAGE_JSON) {
            json_project(p, label);
        } else {
            html_project(p, k.href, label);
        }
    }
    links_reset(&p->links);
}

int page_meta(struct page *p, struct slice name, struct slice content, struct err *e)
{
    if (slice_eq(name, SLICE("pypi:repository-version"))) {
        if (!slice_starts(content, SLICE("1.")) || content.n >= sizeof p->version) {
            return err_set(e, E_UNSUPPORTED,
                           "simple API version \"" SLICE_FMT
                           "\" is not supported; this mirror supports 1.x",
                           SLICE_ARG(slice_first(content, content.n < 16 ? content.n : 16)));
        }
        memcpy(p->version, content.p, content.n);
        p->version[content.n] = '\0';
    } else if (p->format != PAGE_JSON && slice_starts(name, SLICE("pypi:"))) {
        buf_str(&p->metas, "<meta name=\"");
        html_escape(name, &p->metas);
        buf_str(&p->metas, "\" content=\"");
        html_escape(content, &p->metas);
        buf_str(&p->metas, "\">\n");
    } else if (slice_eq(name, SLICE("pypi:tracks"))) {
        jwrite_text(&p->tracks, NULL, content);
    } else if (slice_eq(name, SLICE("pypi:alternate-locations"))) {
        jwrite_text(&p->alternates, NULL, content);
    }
    return 0;
}

/* --- the whole --- */

/* A page of projects: the list by its name, any other when it names projects and no file. */
static bool lists_projects(const struct page *p)
{
    return p->list || (p->files_count == 0 && p->projects.n != 0);
}

static void page_heading(const struct page *p, struct buf *out)
{
    buf_str(out, p->name.n != 0 ? "Links for " : "Simple index");
    html_escape(p->name, out);
}

static void finish_html(struct page *p, struct buf *out)
{
    buf_str(out, "<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width\">\n"
                 "<meta name=\"color-scheme\" content=\"light dark\">\n<meta "
                 "name=\"pypi:repository-version\" content=\"");
    html_escape(p->version[0] != '\0' ? slice_str(p->version) : SLICE("1.0"), out);
    buf_str(out, "\">\n");
    buf_adds(out, buf_slice(&p->metas));
    buf_str(out, "<title>");
    page_heading(p, out);
    buf_str(out, "</title>\n</head>\n<body>\n<h1>");
    page_heading(p, out);
    buf_str(out, "</h1>\n");
    buf_adds(out, buf_slice(lists_projects(p) ? &p->projects : &p->files));
    buf_str(out, "</body>\n</html>\n");
}

static void array_member(struct buf *out, const char *key, const struct buf *members)
{
    jwrite_open(out, key, '[');
    buf_adds(out, buf_slice(members));
    jwrite_close(out, ']');
}

/* From HTML there are no sizes and no versions, so that 1.0 is all that may be said (PEP 700). */
static void finish_json(struct page *p, struct buf *out)
{

    jwrite_open(out, NULL, '{');
    jwrite_open(out, "meta", '{');
    json_member(out, "api-version", p->own ? slice_str(p->version) : SLICE("1.0"));
    if (p->tracks.n != 0) {
        array_member(out, "tracks", &p->tracks);
    }
    jwrite_close(out, '}');
    if (lists_projects(p)) {
        array_member(out, "projects", &p->projects);
    } else {
        json_member(out, "name", p->name);
        if (p->alternates.n != 0) {
            array_member(out, "alternate-locations", &p->alternates);
        }
        array_member(out, "files", &p->files);
        if (p->own) {
            array_member(out, "versions", &p->versions);
        }
    }
    jwrite_close(out, '}');
}

static int first_error(const struct page *p)
{
    return p->files.rc != 0      ? p->files.rc
           : p->projects.rc != 0 ? p->projects.rc
           : p->metas.rc != 0    ? p->metas.rc
           : p->versions.rc != 0 ? p->versions.rc
           : p->tracks.rc != 0   ? p->tracks.rc
                                 : p->alternates.rc;
}

int page_finish(struct page *p, struct buf *out, struct err *e)
{
    int rc = first_error(p);

    if (p->format == PAGE_JSON) {
        finish_json(p, out);
    } else {
        finish_html(p, out);
    }
    rc = rc != 0 ? rc : out->rc;
    return rc != 0 ? err_set(e, rc, "the rewritten page is larger than %zu bytes", out->max) : 0;
}
