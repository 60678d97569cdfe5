#include "server/admin/greet.h"

#include <stdlib.h>

#include "server/sync/rsync/rsyncurl.h"
#include "server/sync/sshurl.h"

enum { SSH_PORT = 22 };

struct greet {
    struct link *link;
    struct proxy proxy;
    const char *word; /* what it is to begin with */
    size_t heard;     /* of that */
    struct buf out;   /* nothing is said */
    void (*done)(void *arg, int rc, const struct err *why);
    void *arg;
};

bool greet_speaks(const char *url)
{
    return strncmp(url, "rsync://", 8) == 0 || strncmp(url, "rsyncs://", 9) == 0 ||
           strncmp(url, "ssh://", 6) == 0;
}

/* --- what comes ---------------------------------------------------------------------------------------------------------- */

static void on_end(void *arg, int rc, const struct err *why)
{
    struct greet *g = arg;
    struct err e = {.code = 0};

    if (rc == 0) {
        rc = err_set(&e, E_NETWORK, "it says nothing, and closes the connection");
        why = &e;
    }
    g->done(g->arg, rc, why);
}

static int on_bytes(void *arg, struct slice *in, struct err *e)
{
    struct greet *g = arg;
    size_t left = strlen(g->word) - g->heard;
    struct slice now = slice_first(*in, in->n < left ? in->n : left);

    *in = slice_from(*in, in->n);
    if (memcmp(now.p, g->word + g->heard, now.n) != 0) {
        return err_set(e, E_PROTOCOL, "who answers there does not begin with %s", g->word);
    }
    g->heard += now.n;
    if (now.n > 0 && now.n == left) {
        link_close(&g->link);
        g->done(g->arg, 0, NULL);
    }
    return 0;
}

static struct buf *out(void *arg)
{
    struct greet *g = arg;

    return &g->out;
}

static void nothing(void *arg)
{
    (void)arg;
}

/* --- where to ------------------------------------------------------------------------------------------------------------ */

static int place_of(struct greet *g, const struct origin_settings *o, struct link_settings *set,
                    struct err *e)
{
    struct rsync_url r;
    struct ssh_url s;
    bool through = false;
    int rc;

    if (strncmp(o->url, "ssh://", 6) == 0) {
        g->word = "SSH-";
        rc = ssh_url_parse(slice_str(o->url), &s, e);
        set->host = s.host;
        set->port = s.port != 0 ? s.port : SSH_PORT;
        if (rc == 0 && slice_starts(s.host, SLICE("["))) {
            set->host = slice_of(s.host.p + 1, s.host.n - 2);
        }
        return rc;
    }
    g->word = "@RSYNCD: ";
    rc = rsync_url_parse(slice_str(o->url), &r, e);
    rc = rc != 0 ? rc : proxy_choose(o->proxy, o->no_proxy, r.host, &g->proxy, &through, e);
    set->host = r.host;
    set->port = r.port;
    set->tls = r.tls;
    set->proxy = through ? &g->proxy : NULL;
    return rc;
}

int greet_open(const struct origin_settings *o, const struct link_site *site,
               void (*done)(void *arg, int rc, const struct err *why), void *arg,
               struct greet **result, struct err *e)
{
    static const struct link_events events = {.on_bytes = on_bytes,
                                              .out = out,
                                              .on_sent = nothing,
                                              .on_quiet = nothing,
                                              .on_end = on_end};
    struct link_settings set = {
        .ca_file = o->ca_file, .connect_ms = o->connect_ms, .stall_ms = o->stall_ms};
    struct greet *g = NEW(struct greet);
    int rc;

    g->done = done;
    g->arg = arg;
    rc = place_of(g, o, &set, e);
    rc = rc != 0 ? rc : link_open(&set, site, &events, g, &g->link, e);
    if (rc != 0) {
        greet_close(&g);
    }
    *result = g;
    return rc;
}

void greet_close(struct greet **gp)
{
    struct greet *g = *gp;

    if (g == NULL) {
        return;
    }
    *gp = NULL;
    link_close(&g->link);
    buf_free(&g->out);
    free(g);
}
