/* Verbs about the daemon itself: status, repo.*, config.*, token.*. */
#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>

#include "common/codec/nearest.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/talk.h"
#include "server/cluster/cluster.h"
#include "server/request/traffic.h"
#include "server/fetch/request.h"
#include "server/live/notices.h"

enum { CLIENTS_REPORTED = 256 };

static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

/* By whom the most was taken; who has no connection now may still stand there. */
static void clients_members(struct talk *t)
{
    struct http_client *c = NULL;
    size_t n = http_server_clients(t->deps->http, &c);

    jwrite_open(t->result, "clients", '[');
    for (size_t i = 0; i < n && i < CLIENTS_REPORTED; i++) {
        char text[INET6_ADDRSTRLEN] = "";
        bool v4 = memcmp(c[i].address, v4_mapped, sizeof(v4_mapped)) == 0;
        (void)inet_ntop(v4 ? AF_INET : AF_INET6, c[i].address + (v4 ? sizeof(v4_mapped) : 0), text,
                        sizeof(text));
        jwrite_open(t->result, NULL, '{');
        jwrite_str(t->result, "address", text);
        jwrite_u64(t->result, "connections", c[i].connections);
        jwrite_u64(t->result, "bytes_out", c[i].bytes_out);
        jwrite_close(t->result, '}');
    }
    jwrite_close(t->result, ']');
    free(c);
}

int verb_status(struct talk *t, struct err *e)
{
    struct buf status = BUF_INIT(4 << 20);
    struct repo_set *rs = repo_set_hold(t->deps->repos);
    struct slice s;
    int rc;

    status_json(t->deps, slice_str(rs->conf->public_url), true, &status);
    repo_set_release(&rs);
    rc = status.rc != 0 ? err_set(e, status.rc, "the status is too large: there are too many repos")
                        : 0;
    s = slice_trim(buf_slice(&status));
    if (rc == 0) {
        buf_adds(t->result, slice_of(s.p + 1, s.n - 3)); /* without its braces and line end */
    }
    buf_free(&status);
    if (rc == 0 && talk_flag(t, "clients")) {
        clients_members(t);
    }
    return rc;
}

/* --- repo.* --- */

static void repo_members(struct talk *t, struct buf *out, const struct repo *r)
{
    struct traffic_sum sum;

    traffic_sum(t->deps->traffic, r->slot, &sum);
    jwrite_str(out, "name", r->name);
    jwrite_str(out, "protocol", r->ops->name);
    jwrite_str(out, "origin", r->shown_origin);
    jwrite_bool(out, "anonymous_read", r->anonymous_read);
    jwrite_u64(out, "requests", traffic_requests(&sum));
    jwrite_u64(out, "bytes", traffic_bytes(&sum));
    if (traffic_hit_ratio(&sum) >= 0) {
        jwrite_ratio(out, "hit_ratio", traffic_hit_ratio(&sum));
    } else {
        jwrite_null(out, "hit_ratio");
    }
}

int verb_repo_ls(struct talk *t, struct err *e)
{
    struct repo_set *rs = repo_set_hold(t->deps->repos);

    (void)e;
    for (size_t i = 0; i < rs->count; i++) {
        repo_members(t, talk_row(t), rs->repo[i]);
        (void)talk_row_end(t);
    }
    repo_set_release(&rs);
    return 0;
}

struct tally {
    uint64_t objects, bytes;
};

static int on_daemon_object(void *arg, const struct object_info *o)
{
    struct tally *n = arg;

    n->objects++;
    n->bytes += o->size_bytes;
    return 0;
}

static int on_daemon_head(void *arg, struct slice name, const struct snap *sn)
{
    struct tally *n = arg;

    (void)name;
    n->objects += sn->entries;
    n->bytes += sn->bytes;
    return 0;
}

int verb_repo_show(struct talk *t, struct err *e)
{
    struct tally held = {0};
    struct origin_request_stats up;
    struct repo_set *rs;
    struct repo *r;
    int rc = talk_need_repo(t, &rs, &r, e);

    if (rc != 0) {
        goto out;
    }
    repo_members(t, t->result, r);
    rc =
        r->origin != NULL
            ? cache_list(t->deps->cache, slice_str(r->name), SLICE_NONE, on_daemon_object, &held, e)
            : head_list(t->deps->store, slice_str(r->name), on_daemon_head, &held, e);
    jwrite_u64(t->result, "objects", held.objects);
    jwrite_u64(t->result, "object_bytes", held.bytes);
    if (r->origin != NULL) {
        origin_stats(r->origin, &up);
        jwrite_u64(t->result, "upstream_requests", up.requests);
        jwrite_u64(t->result, "upstream_bytes", up.bytes);
        jwrite_u64(t->result, "upstream_errors", up.errors);
        jwrite_u64(t->result, "upstream_throttled", up.throttled);
    }
out:
    repo_set_release(&rs);
    return rc < 0 ? rc : 0;
}

/* --- config.* --- */

/* Whether the request means the file that this daemon was started with, and is of the same version:
 * then what this daemon says of the file is what counts. */
static bool means_ours(struct talk *t)
{
    struct slice path = talk_text(t, "path"), version = talk_text(t, "version");
    char real[PATH_MAX];

    return (path.p == NULL ||
            (realpath(t->deps->conf_path, real) != NULL && slice_eqs(path, real))) &&
           (version.p == NULL || slice_eqs(version, MIRROR_VERSION));
}

int verb_config_test(struct talk *t, struct err *e)
{
    struct buf warnings = BUF_INIT(1 << 20);
    struct conf *c = NULL;
    struct err why;
    int rc;

    if (!means_ours(t)) {
        jwrite_bool(t->result, "other", true);
        return 0;
    }
    rc = conf_read(t->deps->conf_path, &c, e);
    if (rc == 0 && t->deps->ops.try(t->deps->ops.arg, c, &why) != 0) {
        rc =
            err_set(e, E_CONFIG, "%s: a reload would be refused: %s", t->deps->conf_path, why.text);
    }
    if (rc == 0) {
        notices_of_conf(t->deps->gate, c, &warnings);
        jwrite_str(t->result, "path", t->deps->conf_path);
        jwrite_u64(t->result, "repos", c->repos_count);
        jwrite_u64(t->result, "listeners", c->listeners_count);
        jwrite_text(t->result, "warnings", buf_slice(&warnings));
    }
    conf_free(&c);
    buf_free(&warnings);
    return rc;
}

int verb_config_reload(struct talk *t, struct err *e)
{
    struct reload_news news = RELOAD_NEWS;
    int rc = t->deps->ops.reload(t->deps->ops.arg, &news, e);

    jwrite_text(t->result, "needs_restart", buf_slice(&news.needs_restart));
    jwrite_text(t->result, "warnings", buf_slice(&news.warnings));
    reload_news_fini(&news);
    return rc;
}

/* --- token.* --- */

/* Is there a repo that this scope's pattern could speak of? */
static bool names_a_repo(const struct conf *c, struct slice scope)
{
    struct slice glob = scope, repo;

    (void)slice_cut(&glob, ':');
    repo = slice_cut(&glob, '/');
    for (size_t i = 0; i < c->repos_count; i++) {
        /* A '*' crosses '/': what stands behind it may as well belong to the path. */
        ptrdiff_t star = slice_find(repo, '*');
        struct slice name = slice_str(c->repos[i].name);
        if (star >= 0 ? slice_starts(name, slice_first(repo, (size_t)star))
                      : slice_eq(name, repo)) {
            return true;
        }
    }
    return false;
}

/* A token may be made before its repo is; mostly it is a slip. */
static void warn_of_scopes(struct talk *t, const char *const *scopes, size_t n)
{
    struct repo_set *rs = repo_set_hold(t->deps->repos);
    const char **names = mem_array(rs->conf->repos_count + 1, sizeof names[0]);
    struct buf text = BUF_INIT(64 << 10);

    for (size_t i = 0; i < rs->conf->repos_count; i++) {
        names[i] = rs->conf->repos[i].name;
    }
    for (size_t i = 0; i < n; i++) {
        struct slice rest = slice_str(scopes[i]);
        const char *near;
        if (names_a_repo(rs->conf, rest)) {
            continue;
        }
        (void)slice_cut(&rest, ':');
        near = nearest_word(names, rs->conf->repos_count, slice_cut(&rest, '/'));
        buf_addf(&text, "%sthe scope %s matches no existing repo%s%s%s", text.n > 0 ? "\n" : "",
                 scopes[i], near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                 near != NULL ? "?" : "");
    }
    if (text.n > 0) {
        jwrite_text(t->result, "warnings", buf_slice(&text));
    }
    buf_free(&text);
    free(names);
    repo_set_release(&rs);
}

/* Another mirror may have created or revoked a token of that name. */
static bool tokens_may_differ(const struct talk *t, int rc)
{
    return (rc == E_EXISTS || rc == E_NOTFOUND) && t->deps->cluster != NULL &&
           cluster_catch_up(t->deps->cluster);
}

int verb_token_create(struct talk *t, struct err *e)
{
    const json_t *list = json_object_get(t->request, "scopes");
    const char *scopes[64];
    char secret[TOKEN_TEXT];
    uint64_t life_s = talk_number(t, "expires_s", 0);
    size_t n = json_array_size(list);
    struct slice name;
    int rc = talk_need(t, "name", &name, e);

    if (rc == 0 && n > ARRAY_LEN(scopes)) {
        rc = err_set(e, E_TOOBIG, "too many scopes; write fewer: a pattern may contain '*'");
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        scopes[i] = json_string_value(json_array_get(list, i));
        if (scopes[i] == NULL) {
            rc = err_set(e, E_USAGE, "every scope must be a string");
        }
    }
    if (rc == 0) {
        uint64_t end_unix_s = life_s != 0 ? clock_unix_s() + life_s : 0;
        rc = token_create(t->deps->gate, name, scopes, n, end_unix_s, secret, e);
        if (tokens_may_differ(t, rc)) {
            rc = token_create(t->deps->gate, name, scopes, n, end_unix_s, secret, e);
        }
    }
    if (rc == 0) {
        jwrite_text(t->result, "name", name);
        jwrite_str(t->result, "token", secret);
        explicit_bzero(secret, sizeof(secret));
        warn_of_scopes(t, scopes, n);
    }
    return rc;
}

static void on_listed_token(void *arg, const struct token_info *tok)
{
    struct buf *row = talk_row(arg);

    jwrite_str(row, "name", tok->name);
    jwrite_str(row, "id", tok->id);
    jwrite_open(row, "scopes", '[');
    for (size_t i = 0; i < tok->scopes_count; i++) {
        jwrite_str(row, NULL, tok->scopes[i]);
    }
    jwrite_close(row, ']');
    jwrite_u64(row, "created_unix_s", tok->created_unix_s);
    jwrite_u64(row, "expires_unix_s", tok->expires_unix_s);
    jwrite_u64(row, "last_used_unix_s", tok->last_used_unix_s);
    buf_str(row, "}}\n"); /* not sent here: the gate's lock is held */
}

int verb_token_ls(struct talk *t, struct err *e)
{
    (void)e;
    token_each(t->deps->gate, on_listed_token, t);
    return 0;
}

int verb_token_revoke(struct talk *t, struct err *e)
{
    struct slice name;
    int rc = talk_need(t, "name", &name, e);

    rc = rc != 0 ? rc : token_revoke(t->deps->gate, name, e);
    return tokens_may_differ(t, rc) ? token_revoke(t->deps->gate, name, e) : rc;
}
