/* engine.c - the rsync engine of the pipeline: one visit, its connections, how it ends. */
#include "server/sync/rsync/rsync_engine.h"

#include <event2/event.h>
#include <openssl/crypto.h>
#include <stdlib.h>

enum {
    WINDOW = ASKED_MAX,
    KEEP_ALIVE_MS = 10000,
};

#define ENGINE(name) extern const struct engine_ops engine_##name;
#include "server/sync/engines.def"
#undef ENGINE

static void dispose(struct engine *g)
{
    rsync_takes_free(g);
    link_close(&g->link);
    pull_free(&g->pull);
    event_free(g->kick);
    buf_free(&g->cursor);
    free(g->block);
    OPENSSL_cleanse(g->user, sizeof g->user);
    free(g);
}

static void enter(struct engine *g)
{
    g->busy++;
}

static void leave(struct engine *g)
{
    if (--g->busy == 0 && g->closed) {
        dispose(g);
    }
}

/* --- how it ends ------------------------------------------------------------------------------------------------------ */

static void finished(struct engine *g, int rc, const struct err *why)
{
    if (!g->finished) {
        g->finished = true;
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

void rsync_ended(struct engine *g, int rc, const struct err *why)
{
    if (g->probing && !g->closed) {
        g->site.log(g->site.log_arg, "the probe came to nothing: %s", why->text);
        g->early.code = 0;
        probe_ended(g);
        return;
    }
    if (g->broken || g->finished || g->closed) {
        return;
    }
    g->broken = true;
    if (!g->listed) {
        g->listed = true;
        g->ev.on_listed(g->arg, rc, why, NULL);
    } else if (g->finishing && rsync_takes_answered(g)) {
        finished(g, rc, why);
    } else {
        g->ev.on_broken(g->arg, rc, why);
    }
}

/* --- what the machine tells ---------------------------------------------------------------------------------------------- */

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

    g->site.log(g->site.log_arg, "%s: " SLICE_FMT, error ? "the peer complains" : "the peer says",
                SLICE_ARG(slice_first(text, text.n < 400 ? text.n : 400)));
}

/* --- the link -------------------------------------------------------------------------------------------------------------- */

static int link_bytes(void *arg, struct slice *in, struct err *e)
{
    struct engine *g = arg;
    int rc;

    enter(g);
    rc = pull_feed(g->pull, in, e);
    if (rc == 0 && g->broken) {
        rc = E_CANCELLED; /* a list that was refused: nothing more is read */
    }
    if (rc == 0 && !g->closed && pull_paused(g->pull)) {
        link_pause(g->link, true);
    }
    leave(g);
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

    enter(g);
    if (pull_is_done(g->pull) && pull_out(g->pull)->n == 0) {
        if (g->probing) {
            probe_ended(g);
        } else {
            finished(g, 0, NULL);
        }
    } else {
        rsync_fill(g);
    }
    leave(g);
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

    enter(g);
    if (rc == 0) {
        rc = pull_eof(g->pull, &e);
        err_prefix(&e, SLICE_FMT, SLICE_ARG(g->url.host));
        why = &e;
    }
    if (rc == 0 && g->probing) {
        probe_ended(g);
    } else if (rc == 0) {
        finished(g, 0, NULL);
    } else {
        rsync_ended(g, rc, why);
    }
    leave(g);
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
    struct engine *g = arg;

    (void)fd;
    (void)what;
    enter(g);
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
    leave(g);
}

/* --- the engine's door -------------------------------------------------------------------------------------------------- */

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

    if (rc == 0) {
        rc = proxy_choose(site->proxy, site->no_proxy, url.host, &proxy, &proxied, e);
    }
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
    list_init(&g->asked);
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
        set.filter = sift_rules(g->site.sift, &set.filters);
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

static void probe(struct engine *g, struct slice cursor)
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

static void list(struct engine *g)
{
    start_visit(g, g->url.path);
}

static unsigned window(const struct engine *g)
{
    (void)g;
    return WINDOW;
}

static void finish(struct engine *g)
{
    g->finishing = true;
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
                                        .probe = probe,
                                        .list = list,
                                        .from_basis = true,
                                        .window = window,
                                        .take = rsync_take,
                                        .resume = rsync_resume,
                                        .cancel = rsync_cancel,
                                        .finish = finish,
                                        .close = close_engine};
