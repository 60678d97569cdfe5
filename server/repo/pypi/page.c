#include "server/repo/pypi/page.h"

#include <stdio.h>

#include "common/codec/html.h"
#include "common/codec/url.h"

void page_init(struct page *p, enum page_format f, const struct repo *r, bool only_named,
               struct slice path, struct slice url, struct batch *rows, size_t max_bytes)
{
    *p = (struct page){.format = f,
                       .name = link_last_segment(path),
                       .list = slice_eq(path, SLICE("simple/")),
                       .files = BUF_INIT(max_bytes),
                       .projects = BUF_INIT(max_bytes),
                       .metas = BUF_INIT(64 << 10),
                       .tracks = BUF_INIT(64 << 10),
                       .alternates = BUF_INIT(64 << 10)};
    links_init(&p->links, r, only_named, path, url, rows);
}

void page_init_told(struct page *p, struct slice url,
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
    struct file_facts f = {.size_bytes = size_bytes};
    struct file_facts m = {.size_bytes = LENGTH_UNKNOWN};
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

static void add_file(struct page *p, const struct page_file *f, const struct link *k)
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

    add_file(p, f, &k);
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
        add_file(p, f, &k);
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
        add_file(p, f, &k);
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
                           "simple API version \"" SLICE_FMT "\": this mirror speaks 1.x",
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
    buf_str(
        out,
        "<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"pypi:repository-version\" content=\"");
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
    return rc != 0 ? err_set(e, rc, "a rewritten page of more than %zu bytes", out->max) : 0;
}
