/* json.c - parses a simple page in JSON, as a stream (project lists have tens of megabytes).
 *
 * For HTML output, it reports to the page what it finds. For JSON output, it writes what it reads,
 * with every key in its place, and edits two things: the links of files, and the files without a
 * link that can be kept, which are removed.
 */
#include <stdlib.h>
#include <yajl/yajl_parse.h>

#include "server/repo/pypi/page.h"

enum { DEPTH_FILE = 3, DEPTH_INNER = 4, DEPTH_MAX = 63 }; /* {"files": [{"hashes": {...}}]} */
enum { LINK_BYTES = 64 << 10 };

enum top { TOP_OTHER, TOP_FILES, TOP_PROJECTS, TOP_META, TOP_ALTERNATES, TOP_STATUS };
enum field {
    FIELD_OTHER,
    FIELD_URL,
    FIELD_PROVENANCE,
    FIELD_REQUIRES,
    FIELD_UPLOAD,
    FIELD_HASHES,
    FIELD_METADATA,
    FIELD_YANKED,
    FIELD_GPG,
    FIELD_SIZE,
};

struct word {
    const char *text;
    int value;
};
static const struct word tops[] = {
    {"files", TOP_FILES},
    {"projects", TOP_PROJECTS},
    {"meta", TOP_META},
    {"alternate-locations", TOP_ALTERNATES},
    {"project-status", TOP_STATUS},
    {NULL, TOP_OTHER},
};
static const struct word fields[] = {
    {"url", FIELD_URL},
    {"provenance", FIELD_PROVENANCE},
    {"requires-python", FIELD_REQUIRES},
    {"upload-time", FIELD_UPLOAD},
    {"hashes", FIELD_HASHES},
    {"core-metadata", FIELD_METADATA},
    {"dist-info-metadata", FIELD_METADATA},
    {"data-dist-info-metadata", FIELD_METADATA},
    {"yanked", FIELD_YANKED},
    {"gpg-sig", FIELD_GPG},
    {"size", FIELD_SIZE},
    {NULL, FIELD_OTHER},
};

struct reader {
    struct page *page;
    struct buf *out; /* JSON to JSON; NULL: the page renders */
    unsigned depth;
    enum top top;
    struct slice meta_key; /* second key, below "meta" and "project-status" */
    enum field field;
    struct slice inner; /* key below "hashes" and "core-metadata" */
    bool in_file;
    struct page_file file;
    struct link link;    /* of its "url"; JSON to JSON */
    size_t before_bytes; /* of *out, where the file began */
    struct arena arena;  /* of the file at hand */
    int rc;
    struct err *e;
};

static int find_word(const struct word *w, struct slice text)
{
    while (w->text != NULL && !slice_eqs(text, w->text)) {
        w++;
    }
    return w->value;
}

/* --- files --- */

static void begin_file(struct reader *r)
{
    arena_reset(&r->arena);
    r->in_file = true;
    r->file = (struct page_file){.size_bytes = LENGTH_UNKNOWN};
    r->link = (struct link){0};
    if (r->out != NULL) {
        r->before_bytes = r->out->n;
    }
}

static void end_file(struct reader *r)
{
    r->in_file = false;
    if (r->out == NULL) {
        page_file(r->page, &r->file);
        return;
    }
    if (r->link.kind == LINK_FILE) {
        page_note(r->page, &r->link, r->file.hash_name, r->file.hash, r->file.metadata,
                  r->file.size_bytes);
    } else if (r->out->rc == 0) {
        r->out->n = r->before_bytes;
    }
    links_reset(&r->page->links);
}

static void write_link(struct reader *r, const struct link *k)
{
    struct buf text = BUF_INIT(LINK_BYTES * 2);

    if (k->kind != LINK_FILE) {
        jwrite_null(r->out, NULL);
        return;
    }
    buf_adds(&text, k->href);
    if (k->fragment.p != NULL) {
        buf_byte(&text, '#');
        buf_adds(&text, k->fragment);
    }
    jwrite_text(r->out, NULL, buf_slice(&text));
    buf_free(&text);
}

/* True: the string was written here. */
static bool file_string(struct reader *r, struct slice s)
{
    struct slice copy = arena_copy(&r->arena, s);
    struct link k;

    switch (r->field) {
    case FIELD_URL:
        r->file.href = copy;
        if (r->out != NULL) {
            links_read(&r->page->links, copy, &r->link);
            write_link(r, &r->link);
            return true;
        }
        break;
    case FIELD_PROVENANCE:
        if (r->out != NULL) {
            links_read(&r->page->links, copy, &k);
            write_link(r, &k);
            return true;
        }
        break;
    case FIELD_REQUIRES:
        r->file.requires_python = copy;
        break;
    case FIELD_UPLOAD:
        r->file.upload_time = copy;
        break;
    case FIELD_YANKED:
        r->file.yanked = true;
        r->file.yanked_why = copy;
        break;
    case FIELD_HASHES:
    case FIELD_METADATA:
    case FIELD_GPG:
    case FIELD_SIZE:
    case FIELD_OTHER:
        break;
    }
    return false;
}

/* A member of "hashes" or "core-metadata". SHA-256 is the one we keep; else the first. */
static void inner_string(struct reader *r, struct slice s)
{
    bool sha256 = slice_eq(r->inner, SLICE("sha256"));

    if (r->field == FIELD_HASHES && (sha256 || r->file.hash.p == NULL)) {
        r->file.hash_name = arena_copy(&r->arena, r->inner);
        r->file.hash = arena_copy(&r->arena, s);
    } else if (r->field == FIELD_METADATA && sha256) {
        r->file.metadata = arena_fmt(&r->arena, "sha256=" SLICE_FMT, SLICE_ARG(s));
    } else if (r->field == FIELD_METADATA && r->file.metadata.p == NULL) {
        r->file.metadata = SLICE("true");
    }
}

static void file_bool(struct reader *r, bool yes)
{
    if (r->field == FIELD_YANKED) {
        r->file.yanked = yes;
    } else if (r->field == FIELD_METADATA && yes && r->file.metadata.p == NULL) {
        r->file.metadata = SLICE("true");
    } else if (r->field == FIELD_GPG) {
        r->file.gpg_sig = yes ? SLICE("true") : SLICE("false");
    }
}

/* --- what stands around them --- */

static const char *meta_name(const struct reader *r)
{
    if (r->top == TOP_META && slice_eq(r->meta_key, SLICE("api-version")) && r->depth == 2) {
        return "pypi:repository-version";
    }
    if (r->top == TOP_META && slice_eq(r->meta_key, SLICE("tracks")) && r->depth == 3) {
        return "pypi:tracks";
    }
    if (r->top == TOP_ALTERNATES && r->depth == 2) {
        return "pypi:alternate-locations";
    }
    if (r->top == TOP_STATUS && r->depth == 2) {
        return slice_eq(r->meta_key, SLICE("status"))   ? "pypi:project-status"
               : slice_eq(r->meta_key, SLICE("reason")) ? "pypi:project-status-reason"
                                                        : NULL;
    }
    return NULL;
}

static bool outer_string(struct reader *r, struct slice s)
{
    const char *name = meta_name(r);

    if (name != NULL && r->rc == 0) {
        r->rc = page_meta(r->page, slice_str(name), s, r->e);
    } else if (r->out == NULL && r->top == TOP_PROJECTS && r->depth == DEPTH_FILE &&
               slice_eq(r->meta_key, SLICE("name"))) {
        page_project(r->page, s);
    }
    return false;
}

/* --- yajl's events; each returns whether to go on --- */

static int continue_pypi_reader(const struct reader *r)
{
    return r->rc == 0 && (r->out == NULL || r->out->rc == 0);
}

static int on_pypi_json_null(void *arg)
{
    struct reader *r = arg;

    if (r->out != NULL) {
        jwrite_null(r->out, NULL);
    }
    return continue_pypi_reader(r) && r->depth > 0;
}

static int on_boolean(void *arg, int yes)
{
    struct reader *r = arg;

    if (r->in_file && r->depth == DEPTH_FILE) {
        file_bool(r, yes != 0);
    }
    if (r->out != NULL) {
        jwrite_bool(r->out, NULL, yes);
    }
    return continue_pypi_reader(r) && r->depth > 0;
}

static int on_pypi_json_number(void *arg, const char *p, size_t n)
{
    struct reader *r = arg;

    if (r->in_file && r->depth == DEPTH_FILE && r->field == FIELD_SIZE &&
        !slice_u64(slice_of(p, n), &r->file.size_bytes)) {
        r->file.size_bytes = LENGTH_UNKNOWN;
    }
    if (r->out != NULL) {
        jwrite_word(r->out, NULL, slice_of(p, n));
    }
    return continue_pypi_reader(r) && r->depth > 0;
}

static int on_pypi_json_string(void *arg, const unsigned char *p, size_t n)
{
    struct reader *r = arg;
    struct slice s = slice_of(p, n);
    bool written = false;

    if (r->in_file && r->depth == DEPTH_FILE) {
        written = file_string(r, s);
    } else if (r->in_file && r->depth == DEPTH_INNER) {
        inner_string(r, s);
    } else if (!r->in_file) {
        written = outer_string(r, s);
    }
    if (r->out != NULL && !written) {
        jwrite_text(r->out, NULL, s);
    }
    return continue_pypi_reader(r) && r->depth > 0;
}

static int on_pypi_json_key(void *arg, const unsigned char *p, size_t n)
{
    struct reader *r = arg;
    struct slice s = slice_of(p, n);

    if (r->depth == 1) {
        r->top = (enum top)find_word(tops, s);
        r->meta_key = SLICE_NONE;
    } else if (r->in_file && r->depth == DEPTH_FILE) {
        r->field = (enum field)find_word(fields, s);
    } else if (r->in_file && r->depth == DEPTH_INNER) {
        r->inner = arena_copy(&r->arena, s);
    } else if (!r->in_file && r->depth <= DEPTH_FILE) {
        if (r->top == TOP_PROJECTS) {
            arena_reset(&r->arena);
        }
        r->meta_key = arena_copy(&r->arena, slice_first(s, n < 64 ? n : 64));
    }
    if (r->out != NULL) {
        jwrite_key(r->out, s);
    }
    return continue_pypi_reader(r);
}

static int on_pypi_json_open(struct reader *r, char bracket)
{
    if (r->depth == 0 && bracket != '{') {
        return 0;
    }
    if (r->out != NULL && r->depth == DEPTH_MAX) {
        r->rc = err_set(r->e, E_TOOBIG, "the page is nested too deeply");
        return 0;
    }
    r->depth++;
    if (r->top == TOP_FILES && r->depth == DEPTH_FILE) {
        begin_file(r);
    }
    if (r->out != NULL) {
        jwrite_open(r->out, NULL, bracket);
    }
    return continue_pypi_reader(r);
}

static int on_pypi_json_close(struct reader *r, char bracket)
{
    if (r->out != NULL) {
        jwrite_close(r->out, bracket);
    }
    if (r->in_file && r->depth == DEPTH_FILE) {
        end_file(r);
    }
    r->depth--;
    return continue_pypi_reader(r);
}

static int on_start_map(void *arg)
{
    return on_pypi_json_open(arg, '{');
}

static int on_end_map(void *arg)
{
    return on_pypi_json_close(arg, '}');
}

static int on_start_array(void *arg)
{
    return on_pypi_json_open(arg, '[');
}

static int on_end_array(void *arg)
{
    return on_pypi_json_close(arg, ']');
}

static int parse_pypi_chunk(struct reader *r, struct slice doc)
{
    static const yajl_callbacks callbacks = {
        .yajl_null = on_pypi_json_null,
        .yajl_boolean = on_boolean,
        .yajl_number = on_pypi_json_number,
        .yajl_string = on_pypi_json_string,
        .yajl_map_key = on_pypi_json_key,
        .yajl_start_map = on_start_map,
        .yajl_end_map = on_end_map,
        .yajl_start_array = on_start_array,
        .yajl_end_array = on_end_array,
    };
    yajl_handle h = yajl_alloc(&callbacks, NULL, r);
    yajl_status st;

    CHECK(h != NULL);
    st = yajl_parse(h, (const unsigned char *)doc.p, doc.n);
    if (st == yajl_status_ok) {
        st = yajl_complete_parse(h);
    }
    if (r->rc == 0 && r->out != NULL && r->out->rc != 0) {
        r->rc = err_set(r->e, r->out->rc, "the page is too large");
    }
    if (r->rc == 0 && (st != yajl_status_ok || r->depth != 0 || doc.n == 0)) {
        r->rc = err_set(r->e, E_PROTOCOL, "not a valid JSON object: error at byte %zu",
                        yajl_get_bytes_consumed(h));
    }
    yajl_free(h);
    arena_fini(&r->arena);
    return r->rc;
}

int page_read_json(struct page *p, struct slice doc, struct err *e)
{
    struct reader r = {.page = p, .e = e};

    return parse_pypi_chunk(&r, doc);
}

int page_edit_json(struct page *p, struct slice doc, struct buf *out, struct err *e)
{
    struct reader r = {.page = p, .out = out, .e = e};

    return parse_pypi_chunk(&r, doc);
}
