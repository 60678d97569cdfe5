/* sums.c - the files that a SHA256SUMS names, each with its digest before it is fetched; and the
 * file itself. */
#include "server/sync/http/sums.h"

#include <stdlib.h>

#include "server/store/tree.h"
#include "server/sync/http/http_engine.h"

enum { SUMS_BYTES = 256 << 20, PATH_ROOM = 4096 };

/* "\n" and "\\" of a line that begins with a backslash. */
static bool unescape(struct slice s, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '\\') {
            buf_byte(out, (uint8_t)s.p[i]);
        } else if (++i < s.n && (s.p[i] == '\\' || s.p[i] == 'n')) {
            buf_byte(out, s.p[i] == 'n' ? '\n' : '\\');
        } else {
            return false;
        }
    }
    return out->rc == 0;
}

/* "<hex>  path" or "<hex> *path"; "./" before a path is nothing. */
static int take_sums_line(struct slice line, struct buf *name, struct sums_events *ev,
                          struct err *e)
{
    bool escaped = line.n != 0 && line.p[0] == '\\';
    struct digest d;
    struct slice path;

    line = escaped ? slice_from(line, 1) : line;
    if (line.n < DIGEST_HEX + 3 || !digest_parse(slice_first(line, DIGEST_HEX), &d) ||
        line.p[DIGEST_HEX] != ' ' ||
        (line.p[DIGEST_HEX + 1] != ' ' && line.p[DIGEST_HEX + 1] != '*')) {
        return err_set(e, E_INVALID, "the list of checksums has an invalid line");
    }
    path = slice_from(line, DIGEST_HEX + 2);
    if (escaped) {
        if (!unescape(path, name)) {
            ev->left_out++;
            return 0;
        }
        path = buf_slice(name);
    }
    while (slice_starts(path, SLICE("./"))) {
        path = slice_from(path, 2);
    }
    if (!tree_path_valid(path)) {
        ev->left_out++;
        return 0;
    }
    return ev->on_file(ev->arg, path, &d, e);
}

int sums_read(struct slice bytes, struct sums_events *ev, struct err *e)
{
    struct buf name = BUF_INIT(PATH_ROOM);
    int rc = 0;

    while (rc == 0 && bytes.n != 0) {
        struct slice line = slice_cut(&bytes, '\n');
        if (line.n != 0 && line.p[line.n - 1] == '\r') {
            line.n--;
        }
        if (line.n != 0 && line.p[0] != '#') {
            rc = take_sums_line(line, &name, ev, e);
        }
    }
    buf_free(&name);
    return rc;
}

/* --- the lister --- */

static const char *const names[] = {"SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt",
                                    "sha256sum.txt"};

struct sums {
    struct http_engine *g;
    size_t name;
    struct doc *doc;
};

static int on_sums_file(void *arg, struct slice path, const struct digest *d, struct err *e)
{
    struct http_engine *g = arg;
    struct sync_entry en = {.type = SYNC_FILE,
                            .path = path,
                            .size_bytes = SYNC_SIZE_UNKNOWN,
                            .mtime_ns = SYNC_TIME_UNKNOWN,
                            .digest_known = true,
                            .digest = *d};
    int rc = g->ev.on_entry(g->arg, &en);

    return rc != 0 ? err_set(e, rc, "the list of checksums has too many files; raise max_entries")
                   : 0;
}

static void request_sums_doc(struct sums *x);

static void on_sums(struct doc *doc, int rc)
{
    struct sums *x = doc->arg;
    struct http_engine *g = x->g;
    struct sums_events ev = {on_sums_file, g, 0};
    struct err why = doc->why;
    struct engine_listed l = {.digests = true};

    if (rc == E_NOTFOUND && x->name + 1 < ARRAY_LEN(names)) {
        doc_free(&x->doc);
        x->name++;
        request_sums_doc(x);
        return;
    }
    if (rc == 0) {
        struct digest d;
        err_clear(&why);
        digest_of(buf_slice(&doc->body), &d);
        rc = on_sums_file(g, slice_str(names[x->name]), &d, &why);
        rc = rc != 0 ? rc : sums_read(buf_slice(&doc->body), &ev, &why);
    }
    l.left_out = ev.left_out;
    doc_free(&x->doc);
    http_listed(g, rc, &why, &l);
}

static void request_sums_doc(struct sums *x)
{
    char *url = http_url_of(x->g, slice_str(names[x->name]));

    x->doc = doc_ask(x->g, url, NULL, SUMS_BYTES, on_sums, x);
    free(url);
}

static void sums_start(struct http_engine *g)
{
    struct sums *x = NEW(struct sums);

    x->g = g;
    g->lister_state = x;
    request_sums_doc(x);
}

static void sums_free(struct http_engine *g)
{
    struct sums *x = g->lister_state;

    if (x != NULL) {
        doc_free(&x->doc);
        free(x);
        g->lister_state = NULL;
    }
}

const struct lister lister_sums = {"sums", sums_start, sums_free, NULL, NULL};
