#include "server/admin/trouble.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/codec/jwrite.h"
#include "common/codec/units.h"
#include "common/os/clock.h"

enum { SENTENCE = 512 };

struct teller {
    const struct sample *s;
    bool whole;
    void (*each)(void *arg, const struct trouble *t);
    void *arg;
    size_t count;
};

static void report_one_trouble(struct teller *l, const struct trouble *t)
{
    l->count++;
    if (l->each != NULL) {
        l->each(l->arg, t);
    }
}

/* ": why", or nothing where it may not be seen or is not known. */
static void add_why(char what[SENTENCE], bool seen, const char *why)
{
    size_t n = strlen(what);

    if (seen && why[0] != '\0') {
        snprintf(what + n, SENTENCE - n, ": %s", why);
    }
}

static bool is_seen(const struct teller *l, const struct repo *r)
{
    return l->whole || (r != NULL && r->anonymous_read);
}

/* --- the daemon's own --- */

static void look_at_store(struct teller *l)
{
    char what[SENTENCE] = "the store can no longer be written; only cached objects are served";

    if (l->s->healthy) {
        return;
    }
    add_why(what, l->whole, l->s->trouble.text);
    report_one_trouble(l, &(struct trouble){.kind = "store",
                                            .what = what,
                                            .todo = "check the disk and the kernel's log"});
}

static void report_full_disk(struct teller *l, const char *what, const char *todo)
{
    report_one_trouble(l, &(struct trouble){.kind = "disk", .what = what, .todo = todo});
}

/* What is free on the file system is the limit: a larger quota changes nothing. */
static void report_full_file_system(struct teller *l, const struct store_space *sp)
{
    char what[SENTENCE], used[UNITS_TEXT], unused[UNITS_TEXT], reserve[UNITS_TEXT];

    size_format(sp->used_bytes, used);
    size_format(sp->disk_free_bytes, unused);
    size_format(sp->reserve_bytes, reserve);
    if (sp->quota_bytes == 0 && sp->used_bytes == 0) {
        snprintf(what, sizeof what,
                 "the store has no room: its file system has %s free and storage.reserve keeps %s "
                 "free",
                 unused, reserve);
    } else {
        snprintf(what, sizeof what,
                 "the file system of the store is nearly full: %s are free, the store uses %s, "
                 "storage.reserve keeps %s free, and pinned and uploaded files are not evicted",
                 unused, used, reserve);
    }
    report_full_disk(
        l, what,
        "free space there, enlarge it, or lower `reserve` of `storage`; `mirrorctl cache "
        "pins` lists the pins");
}

/* Room is made from `high` on: what is far above it cannot be evicted. */
static void look_at_disk(struct teller *l)
{
    const struct store_space *sp = &l->s->space;
    uint64_t margin = (sp->quota_bytes - min_u64(sp->high_bytes, sp->quota_bytes)) / 2;
    char what[SENTENCE], used[UNITS_TEXT], quota[UNITS_TEXT];

    if (sp->full) {
        report_full_disk(
            l, "the disk is full; only cached objects are served",
            "free space on its file system; `mirrorctl cache gc` removes files that nothing "
            "refers to");
    } else if (sp->quota_bytes != 0 && sp->used_bytes <= sp->high_bytes + margin) {
        return;
    } else if (sp->by_disk) {
        report_full_file_system(l, sp);
    } else {
        size_format(sp->used_bytes, used);
        size_format(sp->quota_bytes, quota);
        snprintf(what, sizeof what,
                 "the store is nearly full: %s of %s are used, and pinned and uploaded files "
                 "are not evicted",
                 used, quota);
        report_full_disk(
            l, what,
            "remove pins (`mirrorctl cache pins` lists them), or raise `quota` of `storage`");
    }
}

static void look_at_damage(struct teller *l)
{
    char what[SENTENCE];

    if (l->s->damaged == 0) {
        return;
    }
    snprintf(what, sizeof what, "%" PRIu64 " stored %s found damaged and set aside; %s",
             l->s->damaged, plural(l->s->damaged, "file was", "files were"),
             l->s->clustered && l->s->cluster.state != CLUSTER_NOT_JOINED
                 ? "they are fetched again from their origin or the cluster's bucket"
                 : "files with an origin are fetched again, uploaded files must be published "
                   "again");
    report_one_trouble(
        l, &(struct trouble){.kind = "damage",
                             .what = what,
                             .todo = "check the disk and the kernel's log; `mirrorctl verify` "
                                     "lists the files that are missing and clears this warning "
                                     "once none is",
                             .since_unix_s = l->s->damaged_since_unix_s});
}

/* --- the cluster --- */

static const char *what_helps(const struct err *why)
{
    switch (why->code) {
    case E_DENIED:
    case E_CONFIG:
        return "check the rights of the cluster section's key: when the S3 service accepts it, the "
               "mirror goes on by itself; after a change of the section or of the file that "
               "`authorization` names, restart the mirror; `mirrorctl cluster check` says what is "
               "refused";
    case E_NOSPACE:
        return "free space in the bucket or on this mirror's disk, whichever the line names; the "
               "mirror goes on by itself";
    default:
        return "check the S3 service, the network and `endpoint`; the mirror goes on by itself "
               "when the bucket can be used again";
    }
}

/* A store fails a request now and then. */
static void look_at_clusters_log(struct teller *l, const struct cluster_status *c)
{
    uint64_t confirmed_unix_s = clock_unix_s() - min_u64(c->lag_ms / 1000, clock_unix_s());
    char what[SENTENCE];

    if (c->failures < TROUBLE_FAILURES && c->fresh) {
        return;
    }
    snprintf(what, sizeof what,
             "the cluster's bucket cannot be used: %s are refused, and changes of other mirrors "
             "are not seen",
             c->fresh ? "uploads and other changes" : "changes and requests with a token");
    add_why(what, l->whole, c->why.code != 0 ? c->why.text : "");
    report_one_trouble(l, &(struct trouble){.kind = "cluster",
                                            .what = what,
                                            .todo = what_helps(&c->why),
                                            .since_unix_s = c->failures != 0 ? c->since_unix_s
                                                                             : confirmed_unix_s});
}

static void report_stopped_cluster(struct teller *l, const struct cluster_status *c)
{
    char what[SENTENCE] = "this mirror has stopped following the cluster's log: it serves what it "
                          "has, and nothing can be changed";

    add_why(what, l->whole, c->why.text);
    report_one_trouble(
        l, &(struct trouble){.kind = "cluster",
                             .what = what,
                             .todo = c->why.code == E_UNSUPPORTED
                                         ? "install the version that the other mirrors have"
                                         : "find out which part of the S3 service lost or changed "
                                           "an entry of the log; see docs/cluster.md",
                             .since_unix_s = c->since_unix_s});
}

static void look_at_clusters_check(struct teller *l, const struct cluster_status *c)
{
    bool tested = c->checked.why.code == E_UNSUPPORTED || c->failures == 0;
    char what[SENTENCE] = "the last check of the cluster's bucket failed";

    if (c->checked.step == NULL || !tested) {
        return; /* if the bucket is away, that has been reported */
    }
    if (c->state == CLUSTER_BROKEN) {
        snprintf(what, sizeof what,
                 "the cluster's bucket does not keep the promise that exactly one request creates "
                 "a key, so all changes are refused");
    }
    add_why(what, l->whole, c->checked.why.text);
    report_one_trouble(
        l, &(struct trouble){.kind = "cluster",
                             .what = what,
                             .todo = c->state == CLUSTER_BROKEN
                                         ? "repair or replace the S3 service; changes are accepted "
                                           "again when `mirrorctl cluster check` has passed"
                                         : "repair what the line names, then run `mirrorctl "
                                           "cluster check`",
                             .since_unix_s = c->checked.at_unix_s});
}

static void look_at_clusters_collection(struct teller *l, const struct cluster_status *c)
{
    char what[SENTENCE] = "content that no version names any more cannot be deleted from the "
                          "cluster's bucket";

    if (c->collect.failures < TROUBLE_FAILURES || c->failures != 0) {
        return; /* if the bucket is away, that has been reported */
    }
    add_why(what, l->whole, c->collect.why.text);
    report_one_trouble(l, &(struct trouble){.kind = "cluster",
                                            .what = what,
                                            .todo = "repair what the line names; `mirrorctl "
                                                    "cluster verify` says what the bucket lacks",
                                            .since_unix_s = c->collect.since_unix_s});
}

static void look_at_cluster(struct teller *l)
{
    const struct cluster_status *c = &l->s->cluster;

    if (!l->s->clustered) {
        return;
    }
    if (c->state == CLUSTER_NOT_JOINED && c->parted) {
        report_one_trouble(
            l, &(struct trouble){.kind = "cluster",
                                 .what = "this mirror has left the cluster and stands alone, but "
                                         "its configuration has a cluster section",
                                 .todo = "remove the section before the next start"});
    } else if (c->state == CLUSTER_NOT_JOINED) {
        report_one_trouble(
            l, &(struct trouble){.kind = "cluster",
                                 .what = "this mirror stands alone: its repositories, tokens and "
                                         "pins are not in the bucket of its cluster section",
                                 .todo = "run `mirrorctl cluster adopt` to move them there, or "
                                         "remove the section"});
    } else if (c->state == CLUSTER_STOPPED) {
        report_stopped_cluster(l, c);
    } else {
        look_at_clusters_log(l, c);
    }
    look_at_clusters_check(l, c);
    look_at_clusters_collection(l, c);
}

static void look_at_reload(struct teller *l)
{
    struct lifecycle *life = l->s->deps->lifecycle;
    char what[SENTENCE] = "the last reload was refused; the old settings remain in force";
    struct err why;
    uint64_t at_unix_s;

    if (!life->ready || life->reload_ok) {
        return;
    }
    at_unix_s = lifecycle_refusal(life, &why);
    add_why(what, l->whole, why.text);
    report_one_trouble(
        l,
        &(struct trouble){.kind = "reload",
                          .what = what,
                          .todo = "`mirrorctl config test` names the line; when it is fixed, run "
                                  "`mirrorctl config reload`",
                          .since_unix_s = at_unix_s});
}

static void look_at_certificates(struct teller *l)
{
    int64_t now = (int64_t)clock_unix_s();

    for (size_t i = 0; i < l->s->certificates; i++) {
        const struct http_certificate *c = &l->s->certificate[i];
        char what[SENTENCE], text[TLS_VALIDITY_TEXT];
        if (!tls_validity_alarms(&c->valid, now)) {
            continue;
        }
        tls_validity_format(&c->valid, now, text);
        snprintf(what, sizeof what, "the certificate of %s %s", c->listen, text);
        report_one_trouble(
            l, &(struct trouble){
                   .kind = "certificate",
                   .what = what,
                   .todo = c->valid.begins_unix_s > now
                               ? "check this machine's clock; if it is right, install a valid "
                                 "certificate and run `mirrorctl config reload`"
                               : "renew it, then run `mirrorctl config reload`"});
    }
}

/* --- repos --- */

/* One of several origins is away, and the others answer. */
static void look_at_alternates(struct teller *l, const struct repo *r)
{
    const char *url = NULL;
    unsigned away = origin_away(r->origin, TROUBLE_FAILURES, &url);
    char what[SENTENCE], todo[SENTENCE];

    if (away == 0) {
        return;
    }
    snprintf(what, sizeof what, "%u of its origins %s not answer", away, away == 1 ? "does" : "do");
    add_why(what, is_seen(l, r), url);
    snprintf(todo, sizeof todo, "the others are asked; run `mirrorctl upstream check %s`", r->name);
    report_one_trouble(
        l, &(struct trouble){.kind = "origin", .repo = r->name, .what = what, .todo = todo});
}

/* A synced repo's origin is asked by its runs alone, which tell of it themselves. */
static void look_at_origin(struct teller *l, const struct repo *r)
{
    struct origin_health h;
    char what[SENTENCE], todo[SENTENCE];

    if (r->origin == NULL || r->synced) {
        return;
    }
    origin_health(r->origin, &h);
    if (h.failures < TROUBLE_FAILURES) {
        look_at_alternates(l, r);
        return;
    }
    snprintf(what, sizeof what, "the last %" PRIu64 " requests to the origin failed", h.failures);
    add_why(what, is_seen(l, r), h.why);
    snprintf(todo, sizeof todo,
             "only cached objects are served until it answers; if it is up, check `origin`, "
             "`proxy` and the firewall, then run `mirrorctl upstream check %s`",
             r->name);
    report_one_trouble(l, &(struct trouble){.kind = "origin",
                                            .repo = r->name,
                                            .what = what,
                                            .todo = todo,
                                            .since_unix_s = h.since_unix_s});
}

static void tell_held(struct teller *l, const struct sync_view *v, bool seen)
{
    char what[SENTENCE], todo[SENTENCE];

    snprintf(what, sizeof what, "v%" PRIu64 " is waiting for approval", v->held_seq);
    add_why(what, seen && v->last.outcome == RUN_HELD, v->last.why);
    snprintf(todo, sizeof todo,
             "`mirrorctl snapshot diff %s v%" PRIu64
             "` shows the changes, `mirrorctl sync approve %s` publishes them",
             v->name, v->held_seq, v->name);
    report_one_trouble(
        l,
        &(struct trouble){.kind = "held",
                          .repo = v->name,
                          .what = what,
                          .todo = todo,
                          .since_unix_s = v->last.outcome == RUN_HELD ? v->last.ended_unix_s : 0});
}

static void look_at_sync(struct teller *l, const struct sync_view *v)
{
    bool seen = is_seen(l, repo_set_find(l->s->set, slice_str(v->name)));
    char what[SENTENCE] = "the last sync failed", todo[SENTENCE];

    if (v->paused) {
        return;
    }
    if (v->held_seq != 0) {
        tell_held(l, v, seen);
    }
    if (v->failures == 0) {
        return;
    }
    if (v->failures > 1) {
        snprintf(what, sizeof what, "the last %" PRIu64 " syncs failed", v->failures);
    }
    add_why(what, seen && v->last.outcome == RUN_FAILED, v->last.why);
    snprintf(todo, sizeof todo,
             "`mirrorctl sync logs %s` shows why; `mirrorctl sync run %s` tries again", v->name,
             v->name);
    report_one_trouble(l, &(struct trouble){.kind = "sync",
                                            .repo = v->name,
                                            .what = what,
                                            .todo = todo,
                                            .since_unix_s = v->last_ok_unix_s});
}

size_t trouble_each(const struct sample *s, bool whole,
                    void (*each)(void *arg, const struct trouble *t), void *arg)
{
    struct teller l = {.s = s, .whole = whole, .each = each, .arg = arg};

    look_at_store(&l);
    look_at_disk(&l);
    look_at_cluster(&l);
    look_at_damage(&l);
    look_at_certificates(&l);
    for (size_t i = 0; i < s->set->count; i++) {
        look_at_origin(&l, s->set->repo[i]);
    }
    for (size_t i = 0; i < s->syncs; i++) {
        look_at_sync(&l, &s->sync[i]);
    }
    look_at_reload(&l);
    return l.count;
}

struct list_of_troubles {
    const char *kind;
    struct buf *out;
};

static void write_json(void *arg, const struct trouble *t)
{
    const struct list_of_troubles *list = arg;
    struct buf *out = list->out;

    if (list->kind != NULL && strcmp(list->kind, t->kind) != 0) {
        return;
    }
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "kind", t->kind);
    if (t->repo != NULL) {
        jwrite_str(out, "repo", t->repo);
    } else {
        jwrite_null(out, "repo");
    }
    jwrite_text(out, "what", slice_str(t->what));
    jwrite_str(out, "todo", t->todo);
    jwrite_u64(out, "since_unix_s", t->since_unix_s);
    jwrite_close(out, '}');
}

void trouble_json(const struct sample *s, bool whole, const char *kind, struct buf *out)
{
    struct list_of_troubles list = {kind, out};

    jwrite_open(out, "trouble", '[');
    trouble_each(s, whole, write_json, &list);
    jwrite_close(out, ']');
}
