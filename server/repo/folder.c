#include "server/repo/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/codec/jwrite.h"
#include "common/codec/units.h"
#include "common/codec/url.h"
#include "server/page/html.h"

struct group { /* trees that share the next segment of their names: one folder of the page */
    struct buf name;
    uint64_t trees, bytes, newest_unix_s;
};

struct listing {
    bool (*hides)(struct slice tree); /* NULL: none */
    bool html;
    bool recursive;
    struct buf *out;
    struct store *s;
    const struct digest *root;
    struct slice folder; /* with its '/', or empty */
    size_t count;
    struct buf skip; /* a path after all of the folder that was just listed */
    struct group group;
};

/* Longer than any path, so that folder + these bytes sorts after all that lies below the folder. */
enum { SKIP_BYTES = 4096, NAME_BYTES = 4096, WHEN_BYTES = 32 };
#define SIZE_NONE UINT64_MAX

/* --- pages --- Every entry is a plain, percent-encoded <a href="name">, and only entries are
 * written so: rclone, wget, lftp and fsspec walk these links. */

static void when_text(char out[WHEN_BYTES], int64_t unix_s)
{
    time_t at = (time_t)unix_s;
    struct tm tm;

    out[0] = '\0';
    if (unix_s > 0 && gmtime_r(&at, &tm) != NULL) {
        strftime(out, WHEN_BYTES, "%Y-%m-%d %H:%M", &tm);
    }
}

/* A canonical path has two escapes, "%2F" and "%25": the address keeps them, the text shows what
 * they stand for. */
static void crumb_href(struct slice path, struct buf *out)
{
    for (size_t i = 0; i < path.n; i++) {
        if (path.p[i] == '%') {
            buf_byte(out, '%');
        } else {
            url_encode_path(slice_of(path.p + i, 1), out);
        }
    }
}

static void crumb_text(struct slice segment, struct buf *out)
{
    struct buf plain = BUF_INIT(NAME_BYTES);

    html_text(out, url_decode(segment, &plain) && plain.rc == 0 ? buf_slice(&plain) : segment);
    buf_free(&plain);
}

/* "mirrord / models / me / gpt": every segment but the last is a link. path: as requested, below
 * the repo. */
static void crumbs(struct buf *out, const struct repo *r, struct slice path)
{
    struct buf href = BUF_INIT(4 * SKIP_BYTES);
    struct slice segment = slice_str(r->name);
    struct slice rest = path;

    html_nav_begin(out, SLICE("/"));
    buf_str(out, "mirrord</a>");
    buf_byte(&href, '/');
    for (;;) {
        buf_str(out, " / ");
        if (rest.n == 0) {
            break;
        }
        crumb_href(segment, &href);
        buf_byte(&href, '/');
        html_nav_begin(out, buf_slice(&href));
        buf_str(out, "<bdi>");
        crumb_text(segment, out);
        buf_str(out, "</bdi></a>");
        segment = slice_cut(&rest, '/');
    }
    buf_str(out, "<bdi>");
    crumb_text(segment, out);
    buf_str(out, "</bdi>");
    buf_free(&href);
}

static void page_begin(struct listing *l, const struct repo *r, struct slice path)
{
    struct buf title = BUF_INIT(2 * SKIP_BYTES);

    buf_adds(&title, path);
    buf_addf(&title, "%s%s - mirrord", path.n != 0 ? " - " : "", r->name);
    html_begin(l->out, buf_slice(&title));
    buf_free(&title);
    buf_str(l->out, "<header class=\"folder\">\n<h1>");
    crumbs(l->out, r, path);
    buf_str(l->out, "</h1>\n");
}

/* dated: the entries have modification times. */
static void page_table(struct listing *l, bool dated, const char *last)
{
    buf_addf(l->out,
             "</header>\n<main>\n<table class=\"folder%s\"><thead><tr><th>Name<th>Modified (UTC)"
             "<th>Size<th>%s</thead>\n<tbody>",
             dated ? "" : " undated", last);
}

/* fsspec takes every reference that begins with "http" for an absolute URL. */
static void entry_href(struct slice name, struct buf *out)
{
    if (slice_starts(name, SLICE("http"))) {
        buf_str(out, "%68");
        name = slice_from(name, 1);
    }
    url_encode_path(name, out);
}

static void page_row(struct listing *l, struct slice name, int64_t unix_s, uint64_t size_bytes,
                     const char *note)
{
    char when[WHEN_BYTES];

    when_text(when, unix_s);
    buf_str(l->out, "<tr><td><a href=\"");
    entry_href(name, l->out);
    buf_str(l->out, "\">");
    html_text(l->out, name);
    buf_addf(l->out, "</a></td><td>%s</td>", when);
    if (size_bytes == SIZE_NONE) {
        buf_str(l->out, "<td></td>");
    } else {
        buf_addf(l->out, "<td title=\"%" PRIu64 "\">", size_bytes);
        html_size(l->out, size_bytes);
        buf_str(l->out, "</td>");
    }
    buf_addf(l->out, "<td>%s</td></tr>\n", note);
}

static void page_end(struct listing *l)
{
    buf_str(l->out, "</tbody></table>\n");
    if (l->count == 0) {
        buf_str(l->out, "<p class=\"words\">Nothing is here yet.</p>\n");
    }
    buf_str(l->out, "</main>\n");
    html_end(l->out, HTML_FOLDER);
}

/* --- one folder --- */

static void write_folder_row(struct listing *l, struct slice name, const struct entry *en)
{
    char hex[DIGEST_HEX + 1];
    char note[DIGEST_HEX + 32];

    digest_format(&en->digest, hex);
    if (l->html) {
        snprintf(note, sizeof note, "<code>%s</code>", hex);
        page_row(l, name, en->mtime_ns / 1000000000, en->size_bytes, note);
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
        page_row(l, name, 0, SIZE_NONE, "");
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
        html_text(&note, target);
        page_row(l, name, 0, SIZE_NONE, buf_cstr(&note));
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
static int on_folder_entry(void *arg, const struct entry *en)
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
            write_folder_row(l, name, en);
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
        rc = tree_walk(s, root, l->folder, after, on_folder_entry, l, e);
        after = buf_slice(&l->skip);
    } while (rc == 1);
    if (rc == E_TOOBIG) {
        return err_set(e, E_TOOBIG,
                       "the listing is larger than %zu bytes; request a folder below this one",
                       l->out->max);
    }
    if (rc == 0 && l->count == 0 && l->folder.n != 0 &&
        !has_entry(l, slice_first(l->folder, l->folder.n - 1))) {
        return err_set(e, E_NOTFOUND, "no such file or folder");
    }
    return rc;
}

/* "@v7/a" was asked for below a tree: that is how versions of a synced repo are written. */
static int suggest_version(const struct listing *l, const struct repo *r, const struct plan *p,
                           struct err *e)
{
    bool file = slice_find(l->folder, '/') + 1 < (ptrdiff_t)l->folder.n;

    return err_set(
        e, E_NOTFOUND,
        "no such file or folder; for a version of the tree write %s/" SLICE_FMT SLICE_FMT, r->name,
        SLICE_ARG(p->name), SLICE_ARG(slice_first(l->folder, l->folder.n - file)));
}

static int list_folder(struct listing *l, struct store *s, const struct repo *r,
                       const struct plan *p, struct err *e)
{
    char hex[DIGEST_HEX + 1];
    char version[24];
    char when[WHEN_BYTES];
    int rc;

    digest_format(&p->snap.root, hex);
    snprintf(version, sizeof version, "v%" PRIu64, p->snap.seq);
    if (l->html) {
        when_text(when, (int64_t)p->snap.created_unix_s);
        page_begin(l, r, p->text);
        buf_addf(l->out, "<p id=\"state\">%s, published %s UTC, root <code>%s</code></p>\n",
                 version, when, hex);
        page_table(l, r->synced, "SHA-256");
    } else {
        jwrite_open(l->out, NULL, '{');
        jwrite_str(l->out, "root", hex);
        jwrite_str(l->out, "version", version);
        jwrite_open(l->out, "entries", '[');
    }
    rc = walk(l, s, &p->snap.root, e);
    if (rc == E_NOTFOUND && slice_starts(l->folder, SLICE("@"))) {
        rc = suggest_version(l, r, p, e);
    }
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

static void end_group(struct listing *l)
{
    struct group *g = &l->group;
    char note[64];

    if (g->trees != 0) {
        snprintf(note, sizeof note, "%" PRIu64 " %s", g->trees,
                 plural(g->trees, "repository", "repositories"));
        page_row(l, buf_slice(&g->name), (int64_t)g->newest_unix_s, g->bytes, note);
    }
    buf_clear(&g->name);
    g->trees = g->bytes = g->newest_unix_s = 0;
}

/* A page shows one level: clients that walk folders ignore links to deeper ones. */
static void page_tree(struct listing *l, struct slice name, const struct snap *sn)
{
    struct group *g = &l->group;
    ptrdiff_t slash = slice_find(name, '/');
    struct buf path = BUF_INIT(NAME_BYTES);
    char note[64];

    if (slash >= 0) {
        struct slice owner = slice_first(name, (size_t)slash + 1);
        if (!slice_eq(owner, buf_slice(&g->name))) {
            end_group(l);
            buf_adds(&g->name, owner);
        }
        g->trees++;
        g->bytes += sn->bytes;
        g->newest_unix_s = max_u64(g->newest_unix_s, sn->created_unix_s);
        return;
    }
    end_group(l);
    buf_adds(&path, name);
    buf_byte(&path, '/');
    snprintf(note, sizeof note, "v%" PRIu64 ", %" PRIu64 " %s", sn->seq, sn->entries,
             plural(sn->entries, "file", "files"));
    page_row(l, buf_slice(&path), (int64_t)sn->created_unix_s, sn->bytes, note);
    buf_free(&path);
}

static int on_folder_tree(void *arg, struct slice name, const struct snap *sn)
{
    struct listing *l = arg;
    char hex[DIGEST_HEX + 1];
    char version[24];

    if (!slice_starts(name, l->folder) || (l->html && l->hides != NULL && l->hides(name))) {
        return 0;
    }
    l->count++;
    if (l->html) {
        page_tree(l, slice_from(name, l->folder.n), sn);
        return 0;
    }
    digest_format(&sn->root, hex);
    snprintf(version, sizeof version, "v%" PRIu64, sn->seq);
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "name", name);
    jwrite_str(l->out, "root", hex);
    jwrite_str(l->out, "version", version);
    jwrite_u64(l->out, "entries", sn->entries);
    jwrite_u64(l->out, "bytes", sn->bytes);
    jwrite_u64(l->out, "created", sn->created_unix_s);
    jwrite_close(l->out, '}');
    return 0;
}

static int list_trees(struct listing *l, struct store *s, const struct repo *r,
                      const struct plan *p, struct err *e)
{
    int rc;

    if (l->html) {
        page_begin(l, r, p->text);
        page_table(l, true, "Holds");
    } else {
        jwrite_open(l->out, NULL, '{');
        jwrite_open(l->out, "trees", '[');
    }
    rc = head_list(s, slice_str(r->name), on_folder_tree, l, e);
    if (l->html) {
        end_group(l);
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

static struct slice with_slash(struct slice folder, struct buf *copy)
{
    if (folder.n == 0 || folder.p[folder.n - 1] == '/') {
        return folder;
    }
    buf_adds(copy, folder);
    buf_byte(copy, '/');
    return buf_slice(copy);
}

int folder_list_but(const struct repo *r, const struct plan *p, struct store *s,
                    bool (*hides)(struct slice tree), struct listing_out *out, struct err *e)
{
    struct buf *body = out->body;
    struct buf copy = BUF_INIT(2 * SKIP_BYTES);
    struct listing l = {.hides = hides,
                        .html = p->html,
                        .recursive = p->recursive,
                        .out = body,
                        .skip = BUF_INIT(3 * SKIP_BYTES),
                        .group.name = BUF_INIT(NAME_BYTES)};
    int rc;

    out->content_type = p->html ? SLICE("text/html; charset=utf-8") : SLICE("application/json");
    l.folder = with_slash(p->entry.path, &copy);
    rc = p->name.p == NULL ? list_trees(&l, s, r, p, e) : list_folder(&l, s, r, p, e);
    if (rc == 0 && body->rc != 0) {
        rc = err_set(e, body->rc, "the listing is larger than %zu bytes", body->max);
    }
    buf_free(&l.skip);
    buf_free(&l.group.name);
    buf_free(&copy);
    return rc;
}

int folder_list(const struct repo *r, const struct plan *p, struct store *s,
                const struct listing_sight *sight, struct listing_out *out, struct err *e)
{
    (void)sight;
    return folder_list_but(r, p, s, NULL, out, e);
}
