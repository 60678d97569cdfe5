#include "server/live/modules.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/sync/sync.h"

struct modules {
    struct modules_deps deps;
    struct door **door;
    size_t doors;
};

static enum module_kind find_rsync_module(void *arg, struct slice name, struct module *out)
{
    struct modules *m = arg;
    struct repo_set *rs = repo_set_hold(m->deps.repos);
    const struct repo *r = repo_set_find(rs, name);
    enum module_kind kind = r == NULL           ? MODULE_NONE
                            : r->anonymous_read ? MODULE_OPEN
                                                : MODULE_LOCKED;

    *out = (struct module){.tree = r != NULL && r->synced ? SLICE(SYNC_TREE) : SLICE_NONE,
                           .passed_through = r != NULL && !r->synced && r->shown_origin != NULL};
    repo_set_release(&rs);
    return kind;
}

static int seen(void *arg, struct slice name, const struct snap *sn)
{
    (void)name;
    (void)sn;
    *(bool *)arg = true;
    return 1;
}

/* Those that have something, and that anybody may read. */
static void each(void *arg, void (*tell)(void *to, const char *module), void *to)
{
    struct modules *m = arg;
    struct repo_set *rs = repo_set_hold(m->deps.repos);

    for (size_t i = 0; i < rs->count; i++) {
        bool some = false;
        const struct repo *r = rs->repo[i];
        if (r->anonymous_read &&
            head_list(m->deps.store, slice_str(r->name), seen, &some, NULL) >= 0 && some) {
            tell(to, r->name);
        }
    }
    repo_set_release(&rs);
}

/* As HTTP would have said it: tools that read access logs know these. */
static int status_of(int rc)
{
    switch (rc) {
    case 0:
        return 200;
    case E_DENIED:
        return 403;
    case E_NOTFOUND:
        return 404;
    case E_BUSY:
        return 429;
    case E_UNSUPPORTED:
        return 501;
    default:
        return 400;
    }
}

static void ended(void *arg, const struct door_visit *v)
{
    struct modules *m = arg;
    struct principal who = {.name = slice_str(v->end.user)};
    struct buf path = BUF_INIT(SESSION_MODULE_MAX + 2);
    struct http_req r = {.method_text = SLICE("RSYNC"), .peer = v->peer, .id = "-"};

    buf_addf(&path, "/%s", v->end.module);
    r.path = buf_slice(&path);
    access_log_write(m->deps.access, ACCESS_NO_LOOP,
                     &(struct access_entry){.req = &r,
                                            .who = &who,
                                            .repo = slice_str(v->end.module),
                                            .cache = "",
                                            .protocol = "rsync",
                                            .status = status_of(v->rc),
                                            .bytes = v->end.sent_bytes,
                                            .files = v->end.files,
                                            .outcome = door_outcome_name(v->outcome),
                                            .took_ns = v->took_ns,
                                            .complete = v->rc == 0});
    buf_free(&path);
}

int modules_open(const struct modules_deps *p, const struct conf *c, struct modules **out,
                 struct err *e)
{
    struct modules *m = NEW(struct modules);
    struct door_site site = {p->store, p->gate, find_rsync_module, each, ended, m};
    int rc = 0;

    m->deps = *p;
    m->door = mem_array(c->doors_count + 1, sizeof m->door[0]);
    for (size_t i = 0; i < c->doors_count && rc == 0; i++) {
        rc = door_open(&c->doors[i], &site, &m->door[i], e);
        m->doors += rc == 0;
    }
    if (rc != 0) {
        modules_close(&m);
    }
    *out = m;
    return rc;
}

void modules_start(struct modules *m)
{
    for (size_t i = 0; i < m->doors; i++) {
        door_start(m->door[i]);
        log_info("rsync.ready", "listen=%s", door_address(m->door[i]));
    }
}

const char *modules_address(const struct modules *m)
{
    return m->doors > 0 ? door_address(m->door[0]) : NULL;
}

void modules_sum(const struct modules *m, struct door_stats *out)
{
    *out = (struct door_stats){.open = 0};
    for (size_t i = 0; i < m->doors; i++) {
        struct door_stats one;
        door_stats(m->door[i], &one);
        out->open += one.open;
        out->files += one.files;
        out->bytes += one.bytes;
        out->sent_bytes += one.sent_bytes;
        out->waits += one.waits;
        out->steps += one.steps;
        for (unsigned o = 0; o < DOOR_OUTCOMES; o++) {
            out->sessions[o] += one.sessions[o];
        }
    }
}

void modules_close(struct modules **mp)
{
    struct modules *m = *mp;

    if (m == NULL) {
        return;
    }
    *mp = NULL;
    for (size_t i = 0; i < m->doors; i++) {
        door_close(&m->door[i]);
    }
    free(m->door);
    free(m);
}
