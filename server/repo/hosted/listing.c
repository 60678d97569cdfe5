#include "server/repo/hosted/listing.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/codec/base64.h"
#include "common/codec/html.h"
#include "common/codec/jwrite.h"
#include "common/codec/url.h"
#include "server/repo/hosted/hub.h"
#include "server/repo/hosted/image.h"
#include "server/repo/hosted/python.h"

struct listing {
    bool html;
    bool recursive;
    struct buf *out;
    struct store *s;
    const struct digest *root;
    struct slice folder; /* with its '/', or empty */
    struct slice href;   /* what a link begins with: for a folder asked for without its '/' */
    size_t count;
    struct buf skip; /* a path after all of the folder that was just listed */
};

/* Longer than any path, so that folder + these bytes sorts after all that lies below the folder. */
enum { SKIP_BYTES = 4096 };

static const char style[] =
    "body { font: 15px/1.5 system-ui, sans-serif; margin: 1rem; } table { border-spacing: 0; } "
    "caption, code { color: GrayText; font-size: 13px; text-align: left; } caption { padding-bottom: "
    ".5rem; } td, th { padding: .1rem 1.5rem .1rem 0; text-align: left; white-space: nowrap; } "
    "td:nth-child(3) { text-align: right; font-variant-numeric: tabular-nums; }";

void hosted_listing_policy(struct buf *out)
{
    char base64[BASE64_ROOM(DIGEST_BYTES)];
    struct digest d;

    digest_of(slice_str(style), &d);
    base64_encode(d.b, DIGEST_BYTES, base64);
    buf_addf(out,
             "default-src 'none'; style-src 'sha256-%s'; form-action 'none'; frame-ancestors "
             "'none'; base-uri 'none'",
             base64);
}

static void page_title(struct listing *l, struct slice name)
{
    html_escape(name, l->out);
    buf_str(l->out, l->folder.n != 0 ? "/" : "");
    html_escape(l->folder, l->out);
}

static void page_begin(struct listing *l, struct slice name)
{
    buf_str(l->out, "<!DOCTYPE html>\n<html><head><title>");
    page_title(l, name);
    buf_str(l->out, "</title>");
    buf_addf(l->out,
             "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, "
             "initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\n"
             "<style>%s</style>\n",
             style);
    buf_str(l->out, "</head><body><h1>");
    page_title(l, name);
    buf_str(l->out, "</h1>\n<table>\n");
}

static void page_rows(struct listing *l)
{
    buf_addf(l->out,
             "<tr><th>Name</th><th>Modified (UTC)</th><th>Bytes</th><th>SHA-256</th></tr>\n"
             "<tr><td><a href=\"%s\">../</a></td><td></td><td></td><td></td></tr>\n",
             l->href.n != 0 ? "." : "../");
}

static void page_row(struct listing *l, struct slice name, int64_t mtime_ns, const char *size,
                     const char *note)
{
    time_t at = (time_t)(mtime_ns / 1000000000);
    char when[32] = "";
    struct tm tm;

    if (mtime_ns > 0 && gmtime_r(&at, &tm) != NULL) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    }
    buf_str(l->out, "<tr><td><a href=\"./");
    url_encode_path(l->href, l->out);
    url_encode_path(name, l->out);
    buf_str(l->out, "\">");
    html_escape(name, l->out);
    buf_addf(l->out, "</a></td><td>%s</td><td>%s</td><td><code>%s</code></td></tr>\n", when, size,
             note);
}

static void page_end(struct listing *l)
{
    buf_str(l->out, "</table></body></html>\n");
}

/* --- one folder --- */

static void file_row(struct listing *l, struct slice name, const struct entry *en)
{
    char hex[DIGEST_HEX + 1];
    char size[24];

    digest_format(&en->digest, hex);
    if (l->html) {
        snprintf(size, sizeof size, "%" PRIu64, en->size_bytes);
        page_row(l, name, en->mtime_ns, size, hex);
        return;
    }
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "path", name);
    jwrite_u64(l->out, "size", en->size_bytes);
    jwrite_str(l->out, "sha256", hex);
    if (en->mtime_ns > 0) {
        jwrite_u64(l->out, "mtime", (uint64_t)en->mtime_ns / 1000000000u);
    } else {
        jwrite_null(l->out, "mtime");
    }
    jwrite_close(l->out, '}');
}

static void folder_row(struct listing *l, struct slice name)
{
    if (l->html) {
        page_row(l, name, 0, "", "");
        return;
    }
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "path", name);
    jwrite_close(l->out, '}');
}

static void link_row(struct listing *l, struct slice name, struct slice target)
{
    struct buf note = BUF_INIT(2 * SKIP_BYTES);

    if (l->html) {
        buf_str(&note, "&rarr; ");
        html_escape(target, &note);
        page_row(l, name, 0, "", buf_cstr(&note));
    } else {
        jwrite_open(l->out, NULL, '{');
        jwrite_text(l->out, "path", name);
        jwrite_text(l->out, "link", target);
        jwrite_close(l->out, '}');
    }
    buf_free(&note);
}

/* A folder with an entry of its own: it has had its row. */
static bool has_entry(const struct listing *l, struct slice folder)
{
    struct arena a = {0};
    struct entry en;
    bool yes = tree_get(l->s, l->root, folder, &a, &en, NULL) == 0 && en.type == ENTRY_DIR;

    arena_fini(&a);
    return yes;
}

/* Stops (1) at a folder: the walk goes on behind it, not through it. */
static int on_entry(void *arg, const struct entry *en)
{
    struct listing *l = arg;
    struct slice name = slice_from(en->path, l->folder.n);
    ptrdiff_t slash = slice_find(name, '/');

    l->count++;
    if (l->out->rc != 0) {
        return E_TOOBIG;
    }
    if (slash < 0 || l->recursive) {
        if (en->type == ENTRY_LINK) {
            link_row(l, name, en->target);
        } else if (en->type == ENTRY_FILE) {
            file_row(l, name, en);
        } else if (!l->recursive) {
            buf_clear(&l->skip);
            buf_adds(&l->skip, name);
            buf_byte(&l->skip, '/');
            folder_row(l, buf_slice(&l->skip));
        }
        return 0;
    }
    if (!has_entry(l, slice_first(en->path, l->folder.n + (size_t)slash))) {
        folder_row(l, slice_first(name, (size_t)slash + 1));
    }
    buf_clear(&l->skip);
    buf_add(&l->skip, en->path.p, l->folder.n + (size_t)slash + 1);
    memset(buf_room(&l->skip, SKIP_BYTES), 0xff, SKIP_BYTES);
    buf_grew(&l->skip, SKIP_BYTES);
    return 1;
}

static int walk(struct listing *l, struct store *s, const struct digest *root, struct err *e)
{
    struct slice after = SLICE_NONE;
    int rc;

    l->s = s;
    l->root = root;
    do {
        rc = tree_walk(s, root, l->folder, after, on_entry, l, e);
        after = buf_slice(&l->skip);
    } while (rc == 1);
    if (rc == E_TOOBIG) {
        return err_set(e, E_TOOBIG, "a listing of more than %zu bytes: ask for a folder below",
                       l->out->max);
    }
    if (rc == 0 && l->count == 0 && l->folder.n != 0 &&
        !has_entry(l, slice_first(l->folder, l->folder.n - 1))) {
        return err_set(e, E_NOTFOUND, "no such file or folder");
    }
    return rc;
}

static int list_folder(struct listing *l, struct store *s, const struct plan *p, struct err *e)
{
    char hex[DIGEST_HEX + 1];
    char version[24];
    int rc;

    digest_format(&p->snap.root, hex);
    snprintf(version, sizeof version, "v%" PRIu64, p->snap.seq);
    if (l->html) {
        page_begin(l, p->name);
        buf_addf(l->out, "<caption>%s, root %s</caption>\n", version, hex);
        page_rows(l);
    } else {
        jwrite_open(l->out, NULL, '{');
        jwrite_str(l->out, "root", hex);
        jwrite_str(l->out, "version", version);
        jwrite_open(l->out, "entries", '[');
    }
    rc = walk(l, s, &p->snap.root, e);
    if (l->html) {
        page_end(l);
    } else {
        jwrite_close(l->out, ']');
        jwrite_close(l->out, '}');
        buf_byte(l->out, '\n');
    }
    return rc;
}

/* --- the trees of a repo, or of one owner in it --- */

static int on_tree(void *arg, struct slice name, const struct snap *sn)
{
    struct listing *l = arg;
    char hex[DIGEST_HEX + 1];
    char size[24];

    if (!slice_starts(name, l->folder) || (l->html && image_is_tree(name))) {
        return 0; /* no page of ours shows an image */
    }
    l->count++;
    digest_format(&sn->root, hex);
    if (l->html) {
        struct buf path = BUF_INIT(256);
        buf_adds(&path, slice_from(name, l->folder.n));
        buf_byte(&path, '/');
        snprintf(size, sizeof size, "%" PRIu64, sn->bytes);
        page_row(l, buf_slice(&path), (int64_t)sn->created_unix_s * 1000000000, size, hex);
        buf_free(&path);
        return 0;
    }
    snprintf(size, sizeof size, "v%" PRIu64, sn->seq);
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "name", name);
    jwrite_str(l->out, "root", hex);
    jwrite_str(l->out, "version", size);
    jwrite_u64(l->out, "entries", sn->entries);
    jwrite_u64(l->out, "bytes", sn->bytes);
    jwrite_u64(l->out, "created", sn->created_unix_s);
    jwrite_close(l->out, '}');
    return 0;
}

static int list_trees(struct listing *l, struct store *s, const struct repo *r, struct err *e)
{
    int rc;

    if (l->html) {
        page_begin(l, slice_str(r->name));
        page_rows(l);
    } else {
        jwrite_open(l->out, NULL, '{');
        jwrite_open(l->out, "trees", '[');
    }
    rc = head_list(s, slice_str(r->name), on_tree, l, e);
    if (l->html) {
        page_end(l);
    } else {
        jwrite_close(l->out, ']');
        jwrite_close(l->out, '}');
        buf_byte(l->out, '\n');
    }
    if (rc == 0 && l->count == 0 && l->folder.n != 0) {
        return err_set(e, E_NOTFOUND, SLICE_FMT " has no trees", SLICE_ARG(l->folder));
    }
    return rc;
}

/* "a/b" asked for without its '/': links are relative to "a/". */
static struct slice with_slash(struct slice folder, struct buf *copy)
{
    if (folder.n == 0 || folder.p[folder.n - 1] == '/') {
        return folder;
    }
    buf_adds(copy, folder);
    buf_byte(copy, '/');
    return buf_slice(copy);
}

static struct slice last_segment(struct slice folder)
{
    return slice_from(folder, slice_behind(slice_first(folder, folder.n - 1), '/'));
}

int hosted_listing(struct store *s, const struct repo *r, const struct plan *p,
                   const struct listing_sight *sight, struct listing_out *out, struct err *e)
{
    struct buf *body = out->body;
    struct buf copy = BUF_INIT(2 * SKIP_BYTES);
    struct listing l = {
        .html = p->html, .recursive = p->recursive, .out = body, .skip = BUF_INIT(3 * SKIP_BYTES)};
    int rc;

    if (p->form == LIST_IMAGE_TAGS || p->form == LIST_IMAGE_REFERRERS) {
        buf_free(&l.skip);
        return image_listing(s, p, out, e);
    }
    if (p->form == LIST_PYTHON_PROJECTS || p->form == LIST_PYTHON_PROJECT) {
        buf_free(&l.skip);
        return python_listing(s, r, p, sight, out, e);
    }
    if (p->form != LIST_OURS) {
        buf_free(&l.skip);
        return p->form == LIST_HUB_TREES ? hub_trees(s, r, p, sight, out, e)
                                         : hub_listing(s, r, p, body, &out->content_type, e);
    }
    out->content_type = p->html ? SLICE("text/html; charset=utf-8") : SLICE("application/json");
    l.folder = with_slash(p->entry.path, &copy);
    l.href = copy.n != 0 ? last_segment(l.folder) : SLICE("");
    rc = p->name.p == NULL ? list_trees(&l, s, r, e) : list_folder(&l, s, p, e);
    if (rc == 0 && body->rc != 0) {
        rc = err_set(e, body->rc, "a listing of more than %zu bytes", body->max);
    }
    buf_free(&l.skip);
    buf_free(&copy);
    return rc;
}
