#include "server/sync/http/heads.h"

#include <stdlib.h>

#include "server/sync/http/http_engine.h"

/* The cursor: version 2, SHA-256 of the settings, then of each document its path and its validator,
 * u16 and text. Beside the 32 bytes of a probe's digest it is never mistaken. */
enum { CURSOR_ROOM = 4096, HEAD = 1 + DIGEST_BYTES };

struct heads {
    struct http_engine *g;
    struct buf cursor;
    size_t at; /* the next document's place in it */
    struct doc *doc;
};

static void free_one(struct heads *h)
{
    doc_free(&h->doc);
    buf_free(&h->cursor);
    free(h);
}

void heads_free(struct heads **hp)
{
    struct heads *h = *hp;

    *hp = NULL;
    if (h != NULL) {
        free_one(h);
    }
}

static void begin_probe_cursor(struct buf *b, const struct http_engine *g)
{
    struct buf settings = BUF_INIT(1 << 20);
    struct digest d;

    buf_str(&settings, g->lister->name);
    for (size_t i = 0; i < g->site->conf->subdirs_count; i++) {
        buf_byte(&settings, 0);
        buf_str(&settings, g->site->conf->subdirs[i]);
    }
    digest_of(buf_slice(&settings), &d);
    buf_free(&settings);
    buf_clear(b);
    buf_byte(b, 2);
    buf_add(b, d.b, DIGEST_BYTES);
}

void heads_begin(struct http_engine *g)
{
    if (g->probe == NULL) { /* else that file tells */
        begin_probe_cursor(&g->cursor, g);
    }
}

void heads_note(struct http_engine *g, struct slice path, const char *validator)
{
    struct slice v = slice_str(validator);

    if (g->probe != NULL || g->cursor.n == 0) {
        return; /* it has been given up */
    }
    if (v.n != 0 && g->cursor.n + path.n + v.n + 4 <= CURSOR_ROOM) {
        buf_counted(&g->cursor, 2, path);
        buf_counted(&g->cursor, 2, v);
    } else {
        buf_clear(&g->cursor);
    }
}

/* --- the questions, one after the other --- */

static bool read_text(struct heads *h, struct slice *out)
{
    struct slice rest = slice_from(buf_slice(&h->cursor), min_u64(h->at, h->cursor.n));

    if (!slice_counted(&rest, 2, out)) {
        return false;
    }
    h->at = h->cursor.n - rest.n;
    return true;
}

static void answer_head_probe(struct http_engine *g, enum probe_answer a)
{
    heads_free(&g->heads);
    http_probed(g, a);
}

static bool request_next_head(struct heads *h);

static void on_doc(struct doc *d, int rc)
{
    struct heads *h = d->arg;
    struct http_engine *g = h->g;
    bool whole = h->at == h->cursor.n;

    doc_free(&h->doc);
    if (rc != E_EXISTS) {
        answer_head_probe(g, rc == E_CHANGED ? PROBE_CHANGED : PROBE_UNKNOWN);
    } else if (!request_next_head(h)) {
        answer_head_probe(g, whole ? PROBE_SAME : PROBE_UNKNOWN);
    }
}

static bool request_next_head(struct heads *h)
{
    struct slice path, validator;
    struct doc_want w = {0};
    struct arena a = {0};
    char *url;

    if (!read_text(h, &path) || !read_text(h, &validator)) {
        return false;
    }
    url = http_url_of(h->g, path);
    w.url = url;
    w.unlike = arena_cstr(&a, validator);
    h->doc = doc_open(h->g, &w, on_doc, h);
    free(url);
    arena_fini(&a);
    return true;
}

static void head_probe_unknown(struct http_engine *g)
{
    answer_head_probe(g, PROBE_UNKNOWN);
}

void heads_probe(struct http_engine *g, struct slice cursor)
{
    struct heads *h = NEW(struct heads);
    struct buf wanted = BUF_INIT(CURSOR_ROOM);

    h->g = g;
    h->cursor = BUF_INIT(CURSOR_ROOM);
    buf_adds(&h->cursor, cursor);
    h->at = HEAD;
    g->heads = h;
    begin_probe_cursor(&wanted, g);
    if (!slice_starts(cursor, buf_slice(&wanted)) || !request_next_head(h)) {
        http_soon(g, head_probe_unknown);
    }
    buf_free(&wanted);
}
