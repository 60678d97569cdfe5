#include "server/sync/http/index.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/buf.h"
#include "common/codec/httpdate.h"
#include "common/codec/jread.h"
#include "common/codec/url.h"
#include "server/store/tree.h"
#include "server/sync/http/http_engine.h"

enum { TAIL_BYTES = 512, HREF_BYTES = 8192 };

/* --- date and size --- */

static bool digits(struct slice *s, unsigned least, unsigned most, unsigned *out)
{
    unsigned n = 0, v = 0;

    while (n < most && n < s->n && isdigit((uint8_t)s->p[n])) {
        v = v * 10 + (unsigned)(s->p[n] - '0');
        n++;
    }
    if (n < least || (n < s->n && isdigit((uint8_t)s->p[n]))) {
        return false;
    }
    *s = slice_from(*s, n);
    *out = v;
    return true;
}

static bool letter(struct slice *s, const char *any)
{
    if (s->n == 0 || s->p[0] == '\0' || strchr(any, s->p[0]) == NULL) {
        return false;
    }
    *s = slice_from(*s, 1);
    return true;
}

static bool month(struct slice *s, unsigned *out)
{
    static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";

    for (unsigned m = 0; s->n >= 3 && m < 12; m++) {
        if (slice_ieq(slice_first(*s, 3), slice_of(names + (size_t)3 * m, 3))) {
            *s = slice_from(*s, 3);
            *out = m + 1;
            return true;
        }
    }
    return false;
}

/* "22-Nov-2026", "2026-11-22", "2026-Nov-22" */
static bool read_index_date(struct slice *s, unsigned *y, unsigned *m, unsigned *d)
{
    struct slice t = *s;

    if (digits(&t, 4, 4, y) && letter(&t, "-") && (month(&t, m) || digits(&t, 2, 2, m)) &&
        letter(&t, "-") && digits(&t, 1, 2, d)) {
        *s = t;
        return true;
    }
    t = *s;
    if (digits(&t, 1, 2, d) && letter(&t, "-") && month(&t, m) && letter(&t, "-") &&
        digits(&t, 4, 4, y)) {
        *s = t;
        return true;
    }
    return false;
}

static bool date_of(struct slice *s, struct index_item *out)
{
    struct slice t = *s;
    struct tm tm = {0};
    unsigned y, m, d, hour, minute, second = 0;
    bool seconds;

    if (!read_index_date(&t, &y, &m, &d) || !letter(&t, " \tT") || !digits(&t, 2, 2, &hour) ||
        !letter(&t, ":") || !digits(&t, 2, 2, &minute)) {
        return false;
    }
    seconds = letter(&t, ":") && digits(&t, 2, 2, &second);
    if (m < 1 || m > 12 || d < 1 || d > 31 || hour > 23 || minute > 59 || second > 60) {
        return false;
    }
    tm.tm_year = (int)y - 1900;
    tm.tm_mon = (int)m - 1;
    tm.tm_mday = (int)d;
    tm.tm_hour = (int)hour;
    tm.tm_min = (int)minute;
    tm.tm_sec = (int)second;
    out->mtime_s = timegm(&tm);
    out->mtime_step_s = seconds ? 1 : 60;
    *s = t;
    return true;
}

static uint64_t unit_of(char c)
{
    switch (toupper((uint8_t)c)) {
    case 'K':
        return (uint64_t)1 << 10;
    case 'M':
        return (uint64_t)1 << 20;
    case 'G':
        return (uint64_t)1 << 30;
    case 'T':
        return (uint64_t)1 << 40;
    default:
        return 0;
    }
}

/* "1234", "1.2K", "12M"; "-" is nothing. Rounded ones know by how much. */
static void read_item_size(struct slice s, struct index_item *out)
{
    uint64_t whole = 0, unit = 0, tenths = 0;
    size_t i = 0;
    bool point = false;

    while (s.n != 0 && isspace((uint8_t)s.p[0])) {
        s = slice_from(s, 1);
    }
    while (i < s.n && isdigit((uint8_t)s.p[i])) {
        if (whole > UINT64_MAX / 10 - 1) {
            return;
        }
        whole = whole * 10 + (uint64_t)(s.p[i++] - '0');
    }
    if (i == 0) {
        return;
    }
    if (i + 1 < s.n && s.p[i] == '.' && isdigit((uint8_t)s.p[i + 1])) {
        point = true;
        tenths = (uint64_t)(s.p[i + 1] - '0');
        for (i += 2; i < s.n && isdigit((uint8_t)s.p[i]); i++) {
        }
    }
    while (i < s.n && s.p[i] == ' ') {
        i++;
    }
    unit = i < s.n ? unit_of(s.p[i]) : 0;
    if (unit == 0) {
        out->size_bytes = point ? UINT64_MAX : whole;
    } else if (whole < UINT64_MAX / unit - 1) {
        out->size_bytes = whole * unit + tenths * unit / 10;
        out->size_step = point ? unit / 10 : unit;
    }
}

/* "22-Nov-2026 12:21  1.2K" behind a link: what of it is a date and a size. */
static void read_tail(struct slice tail, struct index_item *out)
{
    out->size_bytes = UINT64_MAX;
    out->size_step = 0;
    out->mtime_s = INT64_MIN;
    out->mtime_step_s = 0;
    for (; tail.n != 0; tail = slice_from(tail, 1)) {
        if (isdigit((uint8_t)tail.p[0]) && date_of(&tail, out)) {
            read_item_size(tail, out);
            return;
        }
        while (tail.n > 1 &&
               isalnum((uint8_t)tail.p[0])) { /* a date does not begin inside a word */
            tail = slice_from(tail, 1);
        }
    }
}

/* --- HTML ---
 *
 * A scanner of one pass: anchors, and the text behind each of them up to the next. Tags that matter
 * for what is text (comments, script, style) are stepped over, all others count as blanks. */

struct page {
    struct slice rest;
    struct slice url;
    struct buf here; /* decoded path of the page, with its '/' */
    struct url base;
    struct buf href, target, decoded, tail;
    bool open;   /* a link waits for its tail */
    bool inside; /* between <a> and </a> */
    struct index_events *ev;
};

/* Character references that stand in links; others stay as they are. */
static void unescape(struct slice s, struct buf *out)
{
    static const struct {
        const char *name;
        char c;
    } names[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},    {"&quot;", '"'},
                 {"&#39;", '\''}, {"&apos;", '\''}, {"&#x27;", '\''}, {"&#34;", '"'},
                 {"&#43;", '+'},  {"&#38;", '&'}};

    while (s.n != 0) {
        size_t i = 0;
        while (s.p[0] == '&' && i < ARRAY_LEN(names) &&
               !slice_starts(s, slice_str(names[i].name))) {
            i++;
        }
        if (s.p[0] == '&' && i < ARRAY_LEN(names)) {
            buf_byte(out, (uint8_t)names[i].c);
            s = slice_from(s, strlen(names[i].name));
        } else {
            buf_byte(out, (uint8_t)s.p[0]);
            s = slice_from(s, 1);
        }
    }
}

enum link { LINK_OTHER, LINK_WRONG, LINK_FILE, LINK_FOLDER };

/* Which entry of this folder a link means. */
static enum link classify_link(struct page *p, struct slice *name)
{
    struct url u;
    struct slice rest;
    enum link kind = LINK_FILE;

    buf_clear(&p->target);
    buf_clear(&p->decoded);
    if (p->href.rc != 0 || url_resolve(p->url, buf_slice(&p->href), &p->target, NULL) != 0 ||
        url_split(buf_slice(&p->target), &u, NULL) != 0 || u.query.p != NULL ||
        !url_same_host(&u, &p->base)) {
        return LINK_OTHER;
    }
    if (!url_decode(u.path, &p->decoded)) {
        return LINK_WRONG;
    }
    rest = buf_slice(&p->decoded);
    if (!slice_starts(rest, buf_slice(&p->here)) || rest.n == p->here.n) {
        return LINK_OTHER;
    }
    rest = slice_from(rest, p->here.n);
    if (rest.p[rest.n - 1] == '/') {
        rest.n--;
        kind = LINK_FOLDER;
    }
    if (slice_find(rest, '/') >= 0 || !tree_path_valid(rest)) {
        return LINK_WRONG;
    }
    *name = rest;
    return kind;
}

static int finish_link(struct page *p)
{
    struct index_item it = {0};
    enum link kind;

    if (!p->open) {
        return 0;
    }
    p->open = false;
    kind = classify_link(p, &it.name);
    if (kind == LINK_WRONG) {
        p->ev->left_out++;
    }
    if (kind == LINK_OTHER || kind == LINK_WRONG) {
        return 0;
    }
    read_tail(buf_slice(&p->tail), &it);
    it.folder = kind == LINK_FOLDER;
    return p->ev->on_item(p->ev->arg, &it);
}

/* The value of href in a tag's inside. False: there is none. */
static bool href_of(struct slice tag, struct slice *out)
{
    while (tag.n != 0) {
        struct slice name, value = SLICE_NONE;
        size_t n = 0;
        if (isspace((uint8_t)tag.p[0])) {
            tag = slice_from(tag, 1);
            continue;
        }
        while (n < tag.n && !isspace((uint8_t)tag.p[n]) && tag.p[n] != '=' && tag.p[n] != '/') {
            n++;
        }
        name = slice_first(tag, n);
        tag = slice_from(tag, n);
        while (tag.n != 0 && isspace((uint8_t)tag.p[0])) {
            tag = slice_from(tag, 1);
        }
        if (tag.n != 0 && tag.p[0] == '=') {
            tag = slice_from(tag, 1);
            while (tag.n != 0 && isspace((uint8_t)tag.p[0])) {
                tag = slice_from(tag, 1);
            }
            if (tag.n != 0 && (tag.p[0] == '"' || tag.p[0] == '\'')) {
                char quote = tag.p[0];
                tag = slice_from(tag, 1);
                value = slice_cut(&tag, quote);
            } else {
                for (n = 0; n < tag.n && !isspace((uint8_t)tag.p[n]); n++) {
                }
                value = slice_first(tag, n);
                tag = slice_from(tag, n);
            }
        } else if (n == 0 && tag.n != 0) {
            tag = slice_from(tag, 1); /* a stray '/' */
        }
        if (slice_ieq(name, SLICE("href")) && value.p != NULL) {
            *out = slice_trim(value);
            return true;
        }
    }
    return false;
}

/* Up to the '>' that ends it: one inside quotes does not. A page that was cut within a tag ends
 * before it. */
static struct slice cut_tag(struct slice *rest)
{
    struct slice tag = *rest;
    char quote = '\0';
    size_t n = 0;

    for (; n < rest->n; n++) {
        char c = rest->p[n];
        if (quote != '\0') {
            quote = c == quote ? '\0' : quote;
        } else if (c == '>') {
            break;
        } else if ((c == '"' || c == '\'') && n > 0 && rest->p[n - 1] == '=') {
            quote = c;
        }
    }
    tag.n = n < rest->n ? n : 0;
    *rest = slice_from(*rest, n < rest->n ? n + 1 : n);
    return tag;
}

static bool is_tag(struct slice tag, const char *name)
{
    size_t n = strlen(name);

    return tag.n >= n && slice_ieq(slice_first(tag, n), slice_of(name, n)) &&
           (tag.n == n || isspace((uint8_t)tag.p[n]) || tag.p[n] == '/');
}

/* Behind `end`, which is in small letters; all of it when that never comes. */
static void skip_past(struct slice *rest, const char *end)
{
    size_t n = strlen(end);

    while (rest->n >= n && !slice_ieq(slice_first(*rest, n), slice_of(end, n))) {
        *rest = slice_from(*rest, 1);
    }
    *rest = rest->n >= n ? slice_from(*rest, n) : slice_from(*rest, rest->n);
}

static int take_tag(struct page *p)
{
    struct slice tag, href;
    int rc = 0;

    if (slice_starts(p->rest, SLICE("!--"))) {
        skip_past(&p->rest, "-->");
        return 0;
    }
    tag = cut_tag(&p->rest);
    if (is_tag(tag, "script")) {
        skip_past(&p->rest, "</script");
    } else if (is_tag(tag, "style")) {
        skip_past(&p->rest, "</style");
    } else if (is_tag(tag, "a")) {
        rc = finish_link(p);
        if (rc == 0 && href_of(slice_from(tag, 1), &href) && href.n < HREF_BYTES) {
            buf_clear(&p->href);
            buf_clear(&p->tail);
            unescape(href, &p->href);
            p->open = p->inside = true;
        }
    } else if (is_tag(tag, "/a")) {
        p->inside = false;
    } else if (!p->inside && p->tail.n < TAIL_BYTES) {
        buf_byte(&p->tail, ' ');
    }
    return rc;
}

static void take_page_text(struct page *p)
{
    ptrdiff_t at = slice_find(p->rest, '<');
    struct slice text = at < 0 ? p->rest : slice_first(p->rest, (size_t)at);

    p->rest = slice_from(p->rest, text.n + (at >= 0));
    if (p->open && !p->inside && p->tail.n < TAIL_BYTES) {
        text = slice_first(text, min_u64(text.n, TAIL_BYTES - p->tail.n));
        buf_adds(&p->tail, text);
    }
}

static int read_html(struct slice html, struct slice url, struct index_events *ev, struct err *e)
{
    struct page p = {.rest = html,
                     .url = url,
                     .here = BUF_INIT(HREF_BYTES),
                     .href = BUF_INIT(HREF_BYTES),
                     .target = BUF_INIT(4 * HREF_BYTES),
                     .decoded = BUF_INIT(4 * HREF_BYTES),
                     .tail = BUF_INIT(2 * TAIL_BYTES),
                     .ev = ev};
    int rc = url_split(url, &p.base, e);

    if (rc == 0 &&
        (!url_decode(p.base.path, &p.here) || p.here.n == 0 || p.here.p[p.here.n - 1] != '/')) {
        rc = err_set(e, E_INVALID, "the page's URL is invalid or does not end in '/'");
    }
    while (rc == 0 && p.rest.n != 0) {
        take_page_text(&p);
        if (p.rest.n != 0) {
            rc = take_tag(&p);
        }
    }
    rc = rc != 0 ? rc : finish_link(&p);
    buf_free(&p.here);
    buf_free(&p.href);
    buf_free(&p.target);
    buf_free(&p.decoded);
    buf_free(&p.tail);
    return rc;
}

/* --- JSON --- */

/* "Sun, 22 Nov 2026 12:21:05 GMT", "2026-11-22T12:21:05Z" with whatever behind the seconds, a
 * number. */
static void read_item_time(const json_t *v, struct index_item *out)
{
    struct slice text = slice_str(json_string_value(v));
    struct index_item tail;
    uint64_t unix_s;

    out->mtime_s = INT64_MIN;
    if (json_is_integer(v)) {
        out->mtime_s = json_integer_value(v);
    } else if (text.p != NULL && httpdate_parse(text, (uint64_t)time(NULL), &unix_s)) {
        out->mtime_s = (int64_t)unix_s;
    } else if (text.p != NULL) {
        read_tail(text, &tail);
        out->mtime_s = tail.mtime_s;
        out->mtime_step_s = tail.mtime_s != INT64_MIN ? 1 : 0; /* fractions may have been there */
    }
    if (out->mtime_s > (int64_t)1 << 33 || out->mtime_s < -((int64_t)1 << 33)) {
        out->mtime_s = INT64_MIN;
    }
}

static const json_t *one_of(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(o, a);

    return v != NULL ? v : json_object_get(o, b);
}

static bool is_json_folder(const json_t *o, struct slice *name)
{
    if (name->n != 0 && name->p[name->n - 1] == '/') {
        name->n--;
        return true;
    }
    return json_is_true(json_object_get(o, "is_dir")) ||
           slice_eqs(jread_text(o, "type"), "directory");
}

static int take_item(const json_t *o, struct index_events *ev)
{
    const json_t *name = one_of(o, "name", "path");
    struct slice type = jread_text(o, "type");
    struct index_item it = {.size_bytes = UINT64_MAX};

    if (!json_is_string(name)) {
        ev->left_out++;
        return 0;
    }
    it.name = jread_slice(name);
    it.folder = is_json_folder(o, &it.name);
    if (!tree_path_valid(it.name) || slice_eqs(type, "other")) {
        ev->left_out++;
        return 0;
    }
    (void)jread_u64(o, "size", &it.size_bytes);
    read_item_time(one_of(o, "mtime", "mod_time"), &it);
    it.digest_known = !it.folder && digest_parse(jread_text(o, "sha256"), &it.digest);
    return ev->on_item(ev->arg, &it);
}

static int read_json(struct slice page, struct index_events *ev, struct err *e)
{
    json_t *doc = jread_parse(page, JSON_ALLOW_NUL, jread_values_of(page.n));
    const json_t *list = json_is_object(doc) ? json_object_get(doc, "entries") : doc;
    size_t i;
    json_t *o;
    int rc = 0;

    if (!json_is_array(list)) {
        rc = err_set(e, E_INVALID, "the page is not a JSON list");
    }
    json_array_foreach(list, i, o)
    {
        rc = rc != 0 ? rc : take_item(o, ev);
    }
    json_decref(doc);
    return rc;
}

int index_read(enum index_form form, struct slice page, struct slice url, struct index_events *ev,
               struct err *e)
{
    return form == INDEX_JSON ? read_json(page, ev, e) : read_html(page, url, ev, e);
}

/* --- the lister ---
 *
 * Folder pages from the top down, a few at a time. Folders that lead to themselves end at the
 * depth, at the number of entries, or at the bytes that a list may have. */

enum { PAGE_BYTES = 64 << 20, DEPTH_MAX = 64, PATH_ROOM = 4096, DENIED_LOGGED = 20 };

struct folder { /* waits, or its page comes */
    struct list node;
    struct crawl *c;
    struct doc *doc;
    unsigned depth;
    size_t n;
    char path[]; /* without '/' at the end; empty: the top */
};

struct crawl {
    struct http_engine *g;
    struct list waiting, coming;
    unsigned count; /* coming */
    uint64_t entries, folders;
    uint64_t left_out, denied;
    bool bare; /* a file without size and time was listed: each must be asked for */
    bool over;
};

static void folder_add(struct crawl *c, struct slice path, unsigned depth)
{
    struct folder *f = mem_new(sizeof *f + path.n + 1);

    f->c = c;
    f->depth = depth;
    f->n = path.n;
    if (path.n != 0) {
        memcpy(f->path, path.p, path.n);
    }
    list_push_back(&c->waiting, &f->node);
}

static void folder_free(struct folder *f)
{
    doc_free(&f->doc);
    list_remove(&f->node);
    free(f);
}

static void end_index_crawl(struct crawl *c, int rc, const struct err *why)
{
    struct engine_listed l = {.left_out = c->left_out, .partial = c->denied != 0};

    c->over = true;
    if (rc == 0 && c->bare) {
        c->g->site->log(c->g->site->log_arg,
                        "the pages show neither sizes nor times: every file is requested");
    }
    http_listed(c->g, rc, why, &l);
}

struct page_of { /* a page being read */
    struct folder *f;
    struct buf path;
    struct err *e;
};

static int on_item(void *arg, const struct index_item *it)
{
    struct page_of *p = arg;
    struct crawl *c = p->f->c;
    struct sync_entry en = {.type = it->folder ? SYNC_DIR : SYNC_FILE,
                            .size_bytes = it->size_bytes,
                            .size_step = it->size_step,
                            .mtime_ns = it->mtime_s != INT64_MIN ? it->mtime_s * 1000000000
                                                                 : SYNC_TIME_UNKNOWN,
                            .mtime_step_s = it->mtime_step_s,
                            .digest_known = it->digest_known,
                            .digest = it->digest};

    buf_clear(&p->path);
    buf_add(&p->path, p->f->path, p->f->n);
    if (p->f->n != 0) {
        buf_byte(&p->path, '/');
    }
    buf_adds(&p->path, it->name);
    en.path = buf_slice(&p->path);
    if (p->path.rc != 0 || en.path.n >= PATH_ROOM) {
        c->left_out++;
        return 0;
    }
    if (!file_filter_wants_path(c->g->site->file_filter, en.path, it->folder)) {
        return it->folder ? 0 : c->g->ev.on_entry(c->g->arg, &en); /* which counts it */
    }
    if (++c->entries > c->g->site->entries_max) {
        return err_set(p->e, E_TOOBIG, "the pages list more than %llu entries; raise max_entries",
                       (unsigned long long)c->g->site->entries_max);
    }
    if (it->folder) {
        if (p->f->depth == DEPTH_MAX) {
            return err_set(
                p->e, E_TOOBIG,
                "folders are nested more than %d deep; they may link to each other in a circle",
                DEPTH_MAX);
        }
        folder_add(c, en.path, p->f->depth + 1);
        return 0; /* a folder is there when something is in it: pages tell no useful time */
    }
    c->bare = c->bare || (!it->digest_known && it->size_bytes == SYNC_SIZE_UNKNOWN &&
                          en.mtime_ns == SYNC_TIME_UNKNOWN);
    return c->g->ev.on_entry(c->g->arg, &en);
}

static bool says_json(const struct doc *d)
{
    return strncmp(d->content_type, "application/json", 16) == 0;
}

static int read_page(struct folder *f, struct doc *d, struct err *e)
{
    struct page_of p = {.f = f, .path = BUF_INIT(2 * PATH_ROOM), .e = e};
    struct index_events ev = {.on_item = on_item, .arg = &p};
    int rc = index_read(says_json(d) ? INDEX_JSON : INDEX_HTML, buf_slice(&d->body),
                        slice_str(d->final_url), &ev, e);

    f->c->left_out += ev.left_out;
    buf_free(&p.path);
    return rc;
}

static void continue_index_crawl(struct crawl *c);

static void on_folder_page(struct doc *d, int rc)
{
    struct folder *f = d->arg;
    struct crawl *c = f->c;
    struct err why = d->why;
    bool top = f->n == 0;

    if (rc == 0) {
        err_clear(&why);
        rc = read_page(f, d, &why);
    } else if (!top && (rc == E_DENIED || rc == E_NOTFOUND)) {
        /* A folder that cannot be read is not an empty one: nothing is removed. */
        if (++c->denied <= DENIED_LOGGED) {
            c->g->site->log(c->g->site->log_arg, "folder %s: %s", f->path, d->why.text);
        }
        rc = 0;
    } else {
        err_prefix(&why, "folder /%.100s", f->path);
    }
    folder_free(f);
    c->count--;
    if (rc != 0) {
        end_index_crawl(c, rc, &why);
    } else {
        continue_index_crawl(c);
    }
}

static void continue_index_crawl(struct crawl *c)
{
    while (!c->over && c->count < c->g->site->parallel && !list_empty(&c->waiting)) {
        struct folder *f = LIST_ITEM(list_pop_front(&c->waiting), struct folder, node);
        struct arena a = {0};
        struct slice path = arena_fmt(&a, "%.*s%s", (int)f->n, f->path, f->n != 0 ? "/" : "");
        char *url = http_url_of(c->g, path);
        list_push_back(&c->coming, &f->node);
        c->count++;
        f->doc = doc_ask(c->g, url, "application/json, */*;q=0.5", PAGE_BYTES, on_folder_page, f);
        free(url);
        arena_fini(&a);
    }
    if (!c->over && c->count == 0) {
        end_index_crawl(c, 0, NULL);
    }
}

static void crawl_start(struct http_engine *g)
{
    struct crawl *c = NEW(struct crawl);

    c->g = g;
    list_init(&c->waiting);
    list_init(&c->coming);
    g->lister_state = c;
    folder_add(c, SLICE(""), 0);
    continue_index_crawl(c);
}

static void free_index_folders(struct list *folders)
{
    LIST_EACH (folders, it) {
        folder_free(LIST_ITEM(it, struct folder, node));
    }
}

static void crawl_free(struct http_engine *g)
{
    struct crawl *c = g->lister_state;

    if (c != NULL) {
        free_index_folders(&c->waiting);
        free_index_folders(&c->coming);
        free(c);
        g->lister_state = NULL;
    }
}

const struct lister lister_index = {"index", crawl_start, crawl_free, NULL, NULL};
