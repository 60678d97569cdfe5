/* engine.c - the rsync engine of the pipeline: one visit, its connections, how it ends. */
#include <event2/event.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/store/tree.h"
#include "server/sync/rsync/rsync_engine.h"

static void rsync_fill(struct engine *g);
static void rsync_ended(struct engine *g, int rc, const struct err *why);

/* --- the list as received ---
 *
 * Passes the list of an rsync daemon to the pipeline; and what a probe learns from a list of one
 * file. */

static struct sync_entry rsync_sync_entry(const struct file_list *l, uint32_t index, char *room)
{
    const struct list_entry *en = list_at(l, index);
    struct sync_entry s = {.path = list_path(l, en, room),
                           .size_bytes = list_size(l, en),
                           .mtime_ns = en->mtime_ns,
                           .executable = (en->mode & 0111) != 0,
                           .ref = index};

    switch (list_type(en)) {
    case LIST_FILE:
        s.type = SYNC_FILE;
        break;
    case LIST_LINK:
        s.type = SYNC_LINK;
        s.target = list_target(l, en);
        break;
    case LIST_FOLDER:
        s.type = SYNC_DIR;
        break;
    case LIST_BLANK:
    case LIST_OTHER:
        break;
    }
    return s;
}

static int tell_entry(struct engine *g, const struct file_list *l, uint32_t index,
                      int64_t *top_mtime_ns)
{
    char room[LIST_PATH_MAX + 1];
    char first[LIST_PATH_MAX + 1];
    const struct list_entry *en = list_at(l, index);
    struct sync_entry s = rsync_sync_entry(l, index, room);
    int32_t leader = list_leader(l, en);

    if (list_type(en) == LIST_FOLDER && slice_eq(s.path, SLICE("."))) {
        *top_mtime_ns = en->mtime_ns;
        return 0;
    }
    if (list_type(en) == LIST_BLANK || slice_eq(s.path, SLICE("."))) {
        return 0;
    }
    if (list_type(en) == LIST_OTHER || !tree_path_valid(s.path)) {
        g->left_out++;
        g->site.log(g->site.log_arg,
                    "left out: not a file, folder or link, or an invalid path: " SLICE_FMT,
                    SLICE_ARG(s.path));
        return 0;
    }
    if (leader != LIST_NONE) {
        s.leader = list_path(l, list_at(l, (uint32_t)leader), first);
    }
    return g->ev.on_entry(g->arg, &s);
}

/* What changes with the probe file, which `path` names in this list. */
static struct slice cursor_of(const struct file_list *l, const char *path, char *room,
                              size_t room_n)
{
    char at[LIST_PATH_MAX + 1];

    for (uint32_t i = 0; path != NULL && i < list_count(l); i++) {
        const struct list_entry *en = list_at(l, i);
        if (list_type(en) == LIST_FILE && slice_eqs(list_path(l, en, at), path)) {
            int n = snprintf(room, room_n, "%" PRIu64 " %" PRId64, en->size_bytes, en->mtime_ns);
            return slice_of(room, (size_t)n);
        }
    }
    return SLICE_NONE;
}

static int on_probe_list(struct engine *g, const struct file_list *l)
{
    const char *slash = strrchr(g->site.probe, '/');
    char room[64];
    struct slice now = cursor_of(l, slash != NULL ? slash + 1 : g->site.probe, room, sizeof room);

    if (now.n != 0) {
        g->probed = slice_eq(now, buf_slice(&g->cursor)) ? PROBE_SAME : PROBE_CHANGED;
    }
    pull_end_phase(g->pull);
    return 0;
}

/* The machine's event */
static int rsync_on_list(void *arg, struct file_list *l)
{
    struct engine *g = arg;
    char room[64];
    struct engine_listed reported = {.wire_bytes = link_bytes_in(g->link),
                                     .partial = pull_io_error(g->pull) != 0};
    struct err e = {.code = 0};
    int rc = 0;

    if (g->probing) {
        return on_probe_list(g, l);
    }
    reported.cursor = cursor_of(l, g->site.probe, room, sizeof room);
    for (uint32_t i = 0; i < list_count(l) && rc == 0 && !g->closed; i++) {
        rc = tell_entry(g, l, i, &reported.top_mtime_ns);
        list_forget(l, i); /* else it would stand beside the entry list's own of the same length */
    }
    if (g->closed) {
        return E_CANCELLED;
    }
    reported.left_out = g->left_out;
    g->listed = true;
    if (rc != 0) {
        g->broken = true;
        err_set(&e, rc, "an entry of the list was rejected");
        g->ev.on_listed(g->arg, rc, &e, NULL);
        return rc;
    }
    g->ev.on_listed(g->arg, 0, NULL, &reported);
    if (!g->closed) {
        rsync_fill(g);
    }
    return g->closed ? E_CANCELLED : 0;
}

/* --- takes ---
 *
 * Files asked of an rsync daemon: they wait, are asked for many at once, and are answered in that
 * order.
 *
 * A take whose digest does not hold is asked for again, with full sums if it was a delta, then
 * whole, and then given up.
 */

/* Bytes of bases, before the loop has its say. */
enum { SUMS_A_TURN = 64 << 20, COPIED_A_TURN = 64 << 20 };

enum try { TRY_DELTA, TRY_FULL, TRY_WHOLE, TRY_LAST };

struct download {
    struct list node; /* waiting, or asked, in order */
    struct engine *engine;
    struct download_events ev;
    void *arg;
    bool cancelled; /* its answer is still to come, and goes nowhere */
    bool in_flight;
    enum try attempt;
    int32_t index;
    uint64_t listed_bytes;
    int64_t mtime_ns;
    struct blob *basis;
    uint64_t came_bytes;
    uint64_t found_bytes; /* of those, in the basis */
    bool begins;          /* the basis is the beginning of the file */
    unsigned class;       /* delta.h */
};

static struct download *first_listed_download(const struct list *l)
{
    return list_empty(l) ? NULL : LIST_ITEM(l->next, struct download, node);
}

static void free_rsync_download(struct download *t)
{
    list_remove_if(&t->node);
    blob_release(&t->basis);
    free(t);
}

static void rsync_downloads_free(struct engine *g)
{
    struct download *t;

    while ((t = first_listed_download(&g->waiting)) != NULL ||
           (t = first_listed_download(&g->in_flight)) != NULL) {
        free_rsync_download(t);
    }
}

static bool rsync_downloads_answered(const struct engine *g)
{
    return list_empty(&g->waiting) && list_empty(&g->in_flight);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Sums of the basis; false: it cannot be read, so the visit is over. */
static bool write_sums(struct engine *g, struct download *t, uint64_t *spent)
{
    const struct sums_head *h;
    uint32_t i;
    struct err e = {.code = 0};

    while (pull_may_ask(g->pull) && (h = pull_asking(g->pull, &i)) != NULL) {
        uint32_t n = sums_block(h, i);
        int rc = blob_read(t->basis, (uint64_t)i * h->block_bytes, g->block, n, &e);
        if (rc != 0) {
            rsync_ended(g, rc, &e);
            return false;
        }
        pull_block(g->pull, slice_of(g->block, n));
        *spent += n;
        if (*spent > SUMS_A_TURN) {
            event_active(g->kick, EV_TIMEOUT, 0);
            break;
        }
    }
    return true;
}

static void request_rsync_file(struct engine *g, struct download *t)
{
    uint64_t basis = t->attempt < TRY_WHOLE && t->basis != NULL ? blob_size_bytes(t->basis) : 0;

    list_remove(&t->node);
    list_push_back(&g->in_flight, &t->node);
    t->in_flight = true;
    t->came_bytes = t->found_bytes = 0;
    pull_ask(g->pull, t->index, t->listed_bytes, basis, t->attempt == TRY_FULL);
}

/* As many requests as the machine takes now */
/* As many requests as the machine takes now. */
static void rsync_fill(struct engine *g)
{
    uint64_t spent = 0;

    while (!g->broken && !g->closed && g->listed && g->end != ENGINE_FINISHED &&
           pull_may_ask(g->pull) && spent <= SUMS_A_TURN) {
        uint32_t i;
        struct download *t;
        if (pull_asking(g->pull, &i) != NULL) { /* of the last one that was asked */
            t = LIST_ITEM(g->in_flight.prev, struct download, node);
            if (!write_sums(g, t, &spent)) {
                return;
            }
            continue;
        }
        t = first_listed_download(&g->waiting);
        if (t == NULL) {
            if (g->end == ENGINE_FINISHING && list_empty(&g->in_flight)) {
                pull_end_phase(g->pull);
            }
            break;
        }
        request_rsync_file(g, t);
    }
    if (g->link != NULL && !g->broken && !g->closed) {
        link_pump(g->link);
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

/* What the pipeline answered: an error of a take ends that one alone. */
static int answered(struct engine *g, struct download *t, int rc)
{
    if (g->closed) {
        return E_CANCELLED;
    }
    if (rc < 0) {
        struct err e = {.code = 0};
        err_set(&e, rc, "%s", err_plain(rc));
        t->cancelled = true; /* the rest of its answer goes nowhere */
        t->ev.on_done(t->arg, rc, &e, NULL);
        return g->closed ? E_CANCELLED : 0;
    }
    return rc == DOWNLOAD_PAUSE ? PULL_PAUSE : 0;
}

/* the machine's events, */
static int rsync_on_begin(void *arg, int32_t index)
{
    struct engine *g = arg;
    struct download *t = first_listed_download(&g->in_flight);

    CHECK(t != NULL && t->index == index);
    return t->cancelled ? 0 : answered(g, t, t->ev.on_begin(t->arg, 0, SLICE_NONE));
}

/* Four bytes of the wire may name 128 KiB of the basis. */
static int copied(struct engine *g, size_t n)
{
    g->copied_bytes += n;
    if (g->copied_bytes < COPIED_A_TURN) {
        return 0;
    }
    g->copied_bytes = 0;
    g->resting = true;
    event_active(g->kick, EV_TIMEOUT, 0);
    return PULL_PAUSE;
}

static int rsync_on_bytes(void *arg, struct slice bytes, bool here)
{
    struct engine *g = arg;
    struct download *t = first_listed_download(&g->in_flight);
    int rc;

    t->came_bytes += bytes.n;
    if (t->cancelled) {
        return here ? copied(g, bytes.n) : 0;
    }
    rc = answered(g, t, here ? t->ev.on_copy(t->arg, bytes) : t->ev.on_body(t->arg, bytes));
    return rc == 0 && here ? copied(g, bytes.n) : rc;
}

static int rsync_read_basis(void *arg, uint64_t off, void *to, size_t n, struct err *e)
{
    struct engine *g = arg;
    struct download *t = first_listed_download(&g->in_flight);

    t->found_bytes += n;
    return blob_read(t->basis, off, to, n, e);
}

static void on_rsync_download_done(struct download *t, int rc, const struct err *why)
{
    struct download_result got = {.mtime_ns = SYNC_TIME_UNKNOWN};

    list_remove(&t->node);
    /* Not as long as it was listed: it changed meanwhile, and the next run has to look again. */
    if (rc == 0 && t->came_bytes != t->listed_bytes && t->mtime_ns > INT64_MIN / 2) {
        got.mtime_ns = t->mtime_ns - 1000000000;
    }
    if (!t->cancelled) {
        t->ev.on_done(t->arg, rc, why, rc == 0 ? &got : NULL);
    }
    free_rsync_download(t);
}

static int rsync_on_end(void *arg, int32_t index, bool good)
{
    struct engine *g = arg;
    struct download *t = first_listed_download(&g->in_flight);
    bool again = !good && !t->cancelled && t->attempt < TRY_LAST;
    struct err e = {.code = 0};

    CHECK(t->index == index);
    if (good && t->attempt == TRY_DELTA && !t->begins) { /* a beginning says nothing of changes */
        delta_learn(&g->delta, t->class, t->found_bytes, t->came_bytes);
    }
    if (good || t->cancelled) {
        on_rsync_download_done(t, 0, NULL);
    } else {
        g->site.log(g->site.log_arg, "the digest of entry %d does not match%s", (int)index,
                    again ? "; it is requested again" : "");
        if (again) {
            t->attempt = t->attempt == TRY_DELTA ? TRY_FULL : TRY_LAST;
            list_remove(&t->node);
            list_push_front(&g->waiting, &t->node);
            t->in_flight = false;
        } else {
            on_rsync_download_done(
                t, err_set(&e, E_CORRUPT, "its digest does not match the peer's"), &e);
        }
    }
    if (!g->closed) {
        rsync_fill(g);
    }
    return g->closed ? E_CANCELLED : 0;
}

static void rsync_on_missing(void *arg, int32_t index)
{
    struct engine *g = arg;
    struct err e = {.code = 0};

    LIST_EACH (&g->in_flight, it) {
        struct download *t = LIST_ITEM(it, struct download, node);
        if (t->index == index) {
            on_rsync_download_done(t, err_set(&e, E_NOTFOUND, "the peer can no longer read it"),
                                   &e);
            break;
        }
    }
    if (!g->closed) {
        rsync_fill(g);
    }
}

/* --- doors ------------------------------------------------------------------------------------ */

/* and the engine's doors */
static struct download *rsync_download(struct engine *g, const struct download_params *w,
                                       const struct download_events *ev, void *arg)
{
    struct download *t = NEW(struct download);

    CHECK(w->entry->type == SYNC_FILE && g->listed && g->end != ENGINE_FINISHING);
    *t = (struct download){.engine = g,
                           .ev = *ev,
                           .arg = arg,
                           .attempt = TRY_WHOLE,
                           .index = (int32_t)w->entry->ref,
                           .listed_bytes = w->entry->size_bytes,
                           .mtime_ns = w->entry->mtime_ns};
    if (w->basis != NULL &&
        (w->basis_begins ||
         delta_pays(&g->delta, w->entry->path, w->entry->size_bytes, blob_size_bytes(w->basis)))) {
        t->class = delta_class(w->entry->path);
        t->basis = blob_hold(w->basis);
        t->begins = w->basis_begins;
        t->attempt = TRY_DELTA;
    }
    list_push_back(&g->waiting, &t->node);
    event_active(g->kick, EV_TIMEOUT, 0);
    return t;
}

/* after a pause */
static void rsync_go_on(struct engine *g)
{
    g->resting = false;
    if (pull_paused(g->pull)) {
        pull_resume(g->pull);
        link_pause(g->link, false);
    }
}

static void rsync_resume(struct download *t)
{
    if (t == first_listed_download(&t->engine->in_flight) && !t->engine->resting) {
        rsync_go_on(t->engine);
    }
}

static void rsync_cancel(struct download **tp)
{
    struct download *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    t->cancelled = true;
    if (t->in_flight) {
        rsync_resume(t);
    } else {
        free_rsync_download(t);
    }
}

enum {
    WINDOW = PULL_IN_FLIGHT_MAX,
    KEEP_ALIVE_MS = 10000,
};

#define ENGINE(name) extern const struct engine_ops engine_##name;
#include "server/sync/engines.def"
#undef ENGINE

static void dispose(struct engine *g)
{
    rsync_downloads_free(g);
    link_close(&g->link);
    pull_free(&g->pull);
    event_free(g->kick);
    buf_free(&g->cursor);
    free(g->block);
    OPENSSL_cleanse(g->user, sizeof g->user);
    free(g);
}

static void enter_rsync_engine(struct engine *g)
{
    g->busy++;
}

static void leave_rsync_engine(struct engine *g)
{
    if (--g->busy == 0 && g->closed) {
        dispose(g);
    }
}

/* --- how it ends ------------------------------------------------------------------------------ */

static void rsync_engine_finished(struct engine *g, int rc, const struct err *why)
{
    if (g->end != ENGINE_FINISHED) {
        g->end = ENGINE_FINISHED;
        g->ev.on_finished(g->arg, rc, why);
    }
}

/* Whatever it was good for; the list takes a connection of its own. */
static void probe_ended(struct engine *g)
{
    g->probing = false;
    link_close(&g->link);
    pull_free(&g->pull);
    g->ev.on_probe(g->arg, g->probed);
}

/* The visit is over; its purpose decides to whom that is reported. */
static void rsync_ended(struct engine *g, int rc, const struct err *why)
{
    if (g->probing && !g->closed) {
        g->site.log(g->site.log_arg, "the probe failed: %s", why->text);
        g->early.code = 0;
        probe_ended(g);
        return;
    }
    if (g->broken || g->end == ENGINE_FINISHED || g->closed) {
        return;
    }
    g->broken = true;
    if (!g->listed) {
        g->listed = true;
        g->ev.on_listed(g->arg, rc, why, NULL);
    } else if (g->end == ENGINE_FINISHING && rsync_downloads_answered(g)) {
        rsync_engine_finished(g, rc, why);
    } else {
        g->ev.on_broken(g->arg, rc, why);
    }
}

/* --- what the machine tells ------------------------------------------------------------------- */

static void on_phase(void *arg, unsigned phase)
{
    struct engine *g = arg;

    (void)phase;
    pull_end_phase(g->pull); /* what failed was asked for again before */
}

static void on_visit_done(void *arg)
{
    (void)arg; /* when the goodbye has left: see on_sent */
}

static void on_text(void *arg, bool error, struct slice text)
{
    struct engine *g = arg;

    g->site.log(g->site.log_arg, "%s: " SLICE_FMT, error ? "the peer reports" : "the peer says",
                SLICE_ARG(slice_first(text, text.n < 400 ? text.n : 400)));
}

/* --- the link --------------------------------------------------------------------------------- */

static int link_bytes(void *arg, struct slice *in, struct err *e)
{
    struct engine *g = arg;
    int rc;

    enter_rsync_engine(g);
    rc = pull_feed(g->pull, in, e);
    if (rc == 0 && g->broken) {
        rc = E_CANCELLED; /* a list that was refused: nothing more is read */
    }
    if (rc == 0 && !g->closed && pull_paused(g->pull)) {
        link_pause(g->link, true);
    }
    leave_rsync_engine(g);
    return rc;
}

static struct buf *link_out(void *arg)
{
    struct engine *g = arg;
    return pull_out(g->pull);
}

static void link_sent(void *arg)
{
    struct engine *g = arg;

    enter_rsync_engine(g);
    if (pull_is_done(g->pull) && pull_out(g->pull)->n == 0) {
        if (g->probing) {
            probe_ended(g);
        } else {
            rsync_engine_finished(g, 0, NULL);
        }
    } else {
        rsync_fill(g);
    }
    leave_rsync_engine(g);
}

static void link_quiet(void *arg)
{
    struct engine *g = arg;
    pull_keep_alive(g->pull);
}

static void link_end(void *arg, int rc, const struct err *why)
{
    struct engine *g = arg;
    struct err e = {.code = 0};

    enter_rsync_engine(g);
    if (rc == 0) {
        rc = pull_eof(g->pull, &e);
        err_prefix(&e, SLICE_FMT, SLICE_ARG(g->url.host));
        why = &e;
    }
    if (rc == 0 && g->probing) {
        probe_ended(g);
    } else if (rc == 0) {
        rsync_engine_finished(g, 0, NULL);
    } else {
        rsync_ended(g, rc, why);
    }
    leave_rsync_engine(g);
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
    struct engine *g = arg;

    (void)fd;
    (void)what;
    enter_rsync_engine(g);
    if (g->early.code != 0) {
        rsync_ended(g, g->early.code, &g->early);
    } else if (g->probing && g->link == NULL) {
        probe_ended(g);
    } else {
        if (g->resting) {
            rsync_go_on(g);
        }
        rsync_fill(g);
    }
    leave_rsync_engine(g);
}

/* --- the engine's door ------------------------------------------------------------------------ */

static void set_secret(struct engine *g)
{
    struct slice rest = slice_str(g->site.secret);

    if (rest.n == 0) {
        return;
    }
    memcpy(g->user, rest.p, rest.n);
    rest = slice_of(g->user, rest.n);
    if (slice_find(rest, ':') >= 0) {
        struct slice user = slice_cut(&rest, ':');
        g->url.user = g->url.user.n != 0 ? g->url.user : user;
    }
    g->password = rest;
}

static int open_engine(const struct engine_site *site, const struct engine_events *ev, void *arg,
                       struct engine **out, struct err *e)
{
    struct engine *g;
    struct rsync_url url;
    struct proxy proxy;
    bool proxied;
    int rc = rsync_url_parse(site->url, &url, e);

    rc = rc != 0 ? rc : proxy_choose(site->proxy, site->no_proxy, url.host, &proxy, &proxied, e);
    if (rc != 0) {
        return rc;
    }
    if (strlen(site->secret != NULL ? site->secret : "") >= RSYNC_USER_MAX) {
        return err_set(e, E_CONFIG, SLICE_FMT ": the password is too long", SLICE_ARG(url.host));
    }
    g = NEW(struct engine);
    g->ops = &engine_rsync;
    g->site = *site;
    g->ev = *ev;
    g->arg = arg;
    g->url = url;
    g->proxy = proxy;
    g->proxied = proxied;
    g->block = mem_new(SUMS_BLOCK_MOST);
    g->cursor = BUF_INIT(4096);
    set_secret(g);
    list_init(&g->waiting);
    list_init(&g->in_flight);
    g->kick = event_new(site->base, -1, 0, on_kick, g);
    CHECK(g->kick != NULL);
    *out = g;
    return 0;
}

static void start_visit(struct engine *g, struct slice path)
{
    static const struct pull_events pull_ev = {.on_list = rsync_on_list,
                                               .on_begin = rsync_on_begin,
                                               .on_bytes = rsync_on_bytes,
                                               .read_basis = rsync_read_basis,
                                               .on_end = rsync_on_end,
                                               .on_missing = rsync_on_missing,
                                               .on_phase = on_phase,
                                               .on_done = on_visit_done,
                                               .on_text = on_text};
    static const struct link_events link_ev = {.on_bytes = link_bytes,
                                               .out = link_out,
                                               .on_sent = link_sent,
                                               .on_quiet = link_quiet,
                                               .on_end = link_end};
    struct pull_settings set = {.module = g->url.module,
                                .path = path,
                                .user = g->url.user,
                                .password = g->password,
                                .hard_links = true,
                                .offer = 31,
                                .limits = LIST_LIMITS};
    struct link_settings to = {.host = g->url.host,
                               .port = g->url.port,
                               .proxy = g->proxied ? &g->proxy : NULL,
                               .tls = g->url.tls,
                               .ca_file = g->site.ca_file,
                               .connect_ms = g->site.connect_ms,
                               .stall_ms = g->site.stall_ms,
                               .keep_alive_ms = KEEP_ALIVE_MS};
    struct link_site site = {g->site.base, g->site.box};

    if (!g->probing) {
        set.filter = file_filter_rules(g->site.file_filter, &set.filters);
    }
    if (g->site.entries_max != 0) {
        set.limits.entries = (uint32_t)min_u64(g->site.entries_max, INT32_MAX);
    }
    if (g->site.list_bytes_max != 0) {
        set.limits.text_bytes = min_u64(g->site.list_bytes_max, set.limits.text_bytes);
    }
    g->pull = pull_new(&set, &pull_ev, g);
    if (link_open(&to, &site, &link_ev, g, &g->link, &g->early) != 0) {
        event_active(g->kick, EV_TIMEOUT, 0);
    }
}

static void probe_rsync_upstream(struct engine *g, struct slice cursor)
{
    struct buf path = BUF_INIT(2 * LIST_PATH_MAX);

    g->probing = true;
    g->probed = PROBE_UNKNOWN;
    if (g->site.probe == NULL || cursor.n == 0) {
        event_active(g->kick, EV_TIMEOUT, 0); /* nothing to compare */
        return;
    }
    buf_adds(&g->cursor, cursor);
    buf_adds(&path, g->url.path);
    buf_str(&path, g->site.probe);
    start_visit(g, buf_slice(&path));
    buf_free(&path);
}

static void start_rsync_listing(struct engine *g)
{
    start_visit(g, g->url.path);
}

static unsigned window(const struct engine *g)
{
    (void)g;
    return WINDOW;
}

static void finish_rsync_listing(struct engine *g)
{
    if (g->end == ENGINE_OPEN) {
        g->end = ENGINE_FINISHING;
    }
    event_active(g->kick, EV_TIMEOUT, 0);
}

static void close_engine(struct engine **gp)
{
    struct engine *g = *gp;

    if (g == NULL) {
        return;
    }
    *gp = NULL;
    g->closed = true;
    if (g->busy == 0) {
        dispose(g);
    }
}

static const char *const schemes[] = {"rsync", "rsyncs", NULL};
const struct engine_ops engine_rsync = {.name = "rsync",
                                        .schemes = schemes,
                                        .open = open_engine,
                                        .probe = probe_rsync_upstream,
                                        .list = start_rsync_listing,
                                        .from_basis = true,
                                        .window = window,
                                        .download = rsync_download,
                                        .resume = rsync_resume,
                                        .cancel = rsync_cancel,
                                        .finish = finish_rsync_listing,
                                        .close = close_engine};
