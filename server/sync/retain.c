#include "server/sync/retain.h"

#include <stdlib.h>
#include <time.h>

enum { DAY_S = 86400, HOUR_S = 3600, FIRST_MONDAY_S = 4 * DAY_S };

/* A number that is the same within one hour, day, week (from Monday on) or month, in UTC. */
static uint64_t hour_of(uint64_t s)
{
    return s / HOUR_S;
}

static uint64_t day_of_unix_time(uint64_t s)
{
    return s / DAY_S;
}

static uint64_t week_of(uint64_t s)
{
    return (s + 7 * DAY_S - FIRST_MONDAY_S) / (7 * (uint64_t)DAY_S);
}

static uint64_t month_of(uint64_t s)
{
    time_t t = (time_t)s;
    struct tm tm;

    gmtime_r(&t, &tm);
    return (uint64_t)tm.tm_year * 12 + (uint64_t)tm.tm_mon;
}

static void keep_by(uint64_t (*of)(uint64_t s), uint32_t periods, struct retained *snap,
                    size_t count)
{
    uint64_t last = UINT64_MAX;

    for (size_t i = 0; i < count && periods > 0; i++) {
        uint64_t now = of(snap[i].created_unix_s);
        if (now != last) {
            snap[i].keep = true;
            last = now;
            periods--;
        }
    }
}

void retain_judge(const struct sync_conf *c, struct retained *snap, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        snap[i].keep = snap[i].must || i < c->keep_last;
    }
    keep_by(hour_of, c->keep_hourly, snap, count);
    keep_by(day_of_unix_time, c->keep_daily, snap, count);
    keep_by(week_of, c->keep_weekly, snap, count);
    keep_by(month_of, c->keep_monthly, snap, count);
}

struct gathered {
    struct retained *snap;
    size_t count, room;
    uint64_t live_seq, held_seq;
};

static int on_retained_snap(void *arg, const struct snap *sn)
{
    struct gathered *g = arg;

    if (g->count == g->room) {
        g->room = g->room != 0 ? 2 * g->room : 64;
        g->snap = realloc(g->snap, g->room * sizeof g->snap[0]);
        CHECK(g->snap != NULL);
    }
    g->snap[g->count++] = (struct retained){.seq = sn->seq,
                                            .created_unix_s = sn->created_unix_s,
                                            .must = sn->seq == g->live_seq ||
                                                    sn->seq == g->held_seq || sn->label[0] != '\0'};
    return 0;
}

int retain_run(struct store *s, struct slice repo, const struct sync_conf *c, uint64_t held_seq,
               uint64_t *gone, struct err *e)
{
    struct gathered g = {.held_seq = held_seq};
    struct snap live;
    int rc = head_get(s, repo, SLICE(SYNC_TREE), &live, e);

    *gone = 0;
    g.live_seq = rc == 0 ? live.seq : 0;
    rc = rc != 0 ? rc : snap_list(s, repo, SLICE(SYNC_TREE), on_retained_snap, &g, e);
    if (rc == 0) {
        retain_judge(c, g.snap, g.count);
    }
    for (size_t i = 0; rc == 0 && i < g.count; i++) {
        if (!g.snap[i].keep) {
            rc = snap_remove(s, repo, SLICE(SYNC_TREE), g.snap[i].seq, e);
            /* Somebody rolled back to it just now, or named it, or took it away. */
            *gone += rc == 0;
            rc = rc == E_BUSY || rc == E_CHANGED ? 0 : rc;
        }
    }
    free(g.snap);
    return rc;
}
