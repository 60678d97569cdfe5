/* command.c - the words and variables that the rsync program is started with. */
#include <limits.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/sync/exec/exec_engine.h"
#include "server/sync/proxy.h"
#include "server/sync/rsync/rsyncurl.h"
#include "server/sync/sshurl.h"

enum { WORDS_MAX = 40 };

static bool is_ssh(const struct engine_site *site)
{
    return slice_starts(site->url, SLICE("ssh://"));
}

/* rsync cuts what it is given for -e at blanks, and knows quotes; what has one itself cannot be said. */
static int check_quotable(const char *key, const char *text, struct err *e)
{
    return text == NULL || (text[0] != '\0' && strpbrk(text, "'\"\n") == NULL)
               ? 0
               : err_set(e, E_CONFIG, "%s: it is empty, or has a quote in it", key);
}

int exec_check(const struct engine_site *site, struct err *e)
{
    const struct sync_conf *c = site->conf;
    struct rsync_url r;
    struct ssh_url s;
    struct proxy p;
    bool through;
    int rc;

    if (!is_ssh(site)) {
        rc = rsync_url_parse(site->url, &r, e);
        rc = rc == 0 ? proxy_choose(site->proxy, site->no_proxy, r.host, &p, &through, e) : rc;
        return rc == 0 && r.tls ? err_set(e, E_CONFIG, "exec-rsync does not speak rsyncs") : rc;
    }
    rc = ssh_url_parse(site->url, &s, e);
    rc = rc == 0 ? check_quotable("ssh", c->ssh, e) : rc;
    rc = rc == 0 ? check_quotable("ssh_key", c->ssh_key, e) : rc;
    return rc == 0 ? check_quotable("known_hosts", c->known_hosts, e) : rc;
}

/* The program starts elsewhere than we did. */
static const char *whole_path(struct arena *a, const char *path)
{
    char room[PATH_MAX];

    return realpath(path, room) != NULL ? arena_cstr(a, slice_str(room)) : path;
}

static const char *shell(struct arena *a, const struct engine_site *site, const struct ssh_url *u)
{
    const struct sync_conf *c = site->conf;
    struct buf b = BUF_INIT(16 << 10);
    const char *text;

    buf_addf(&b, "'%s' -oBatchMode=yes -oClearAllForwardings=yes -oConnectTimeout=%u",
             c->ssh != NULL ? c->ssh : "ssh", site->connect_ms / 1000 + 1);
    if (u->port != 0) {
        buf_addf(&b, " -p %u", (unsigned)u->port);
    }
    if (c->ssh_key != NULL) {
        buf_addf(&b, " -oIdentitiesOnly=yes -i '%s'", whole_path(a, c->ssh_key));
    }
    if (c->known_hosts != NULL) {
        buf_addf(&b, " '-oUserKnownHostsFile=\"%s\"' -oStrictHostKeyChecking=yes",
                 whole_path(a, c->known_hosts));
    }
    text = arena_cstr(a, buf_slice(&b));
    buf_free(&b);
    return text;
}

static const char *source_ssh(struct arena *a, const struct ssh_url *u)
{
    return arena_fmt(a, SLICE_FMT "%s" SLICE_FMT ":" SLICE_FMT, SLICE_ARG(u->user),
                     u->user.n != 0 ? "@" : "", SLICE_ARG(u->host), SLICE_ARG(u->path))
        .p;
}

/* "user:password", or the password of the URL's user. */
static struct slice secret_of(const struct engine_site *site, struct slice *user)
{
    struct slice rest = slice_str(site->secret != NULL ? site->secret : "");

    if (slice_find(rest, ':') >= 0) {
        struct slice named = slice_cut(&rest, ':');
        *user = user->n != 0 ? *user : named;
    }
    return rest;
}

static const char *source_daemon(struct arena *a, const struct engine_site *site)
{
    struct rsync_url u;
    bool six;

    (void)!rsync_url_parse(site->url, &u, NULL); /* it was fine when we were opened */
    (void)secret_of(site, &u.user);
    six = slice_find(u.host, ':') >= 0;
    return arena_fmt(a, "rsync://" SLICE_FMT "%s%s" SLICE_FMT "%s:%u/" SLICE_FMT "/" SLICE_FMT,
                     SLICE_ARG(u.user), u.user.n != 0 ? "@" : "", six ? "[" : "", SLICE_ARG(u.host),
                     six ? "]" : "", (unsigned)u.port, SLICE_ARG(u.module), SLICE_ARG(u.path))
        .p;
}

const char *const *exec_argv(struct exec_engine *g)
{
    /* Of what is given here the other end sees nothing that rsync 2.6 does not know. */
    static const char *const always[] = {
        "-rltHp",
        "--no-inc-recursive",
        "--chmod=ug-s,Du+rwx,Fu+rw",
        "--delete",
        "--delete-excluded",
        "--munge-links",
        "--modify-window=-1", /* nanoseconds count */
        "--no-motd",
        "--no-human-readable",
        "--info=progress2,skip1,nonreg1",
    };
    const struct engine_site *site = g->site;
    struct arena *a = &g->arena;
    struct ssh_url ssh;
    size_t rules, n = 0;
    const char *const *rule = sift_rules(site->sift, &rules);
    const char **w = arena_alloc(a, (WORDS_MAX + rules) * sizeof *w);

    w[n++] = g->program;
    for (size_t i = 0; i < ARRAY_LEN(always); i++) {
        w[n++] = always[i];
    }
    w[n++] = arena_fmt(a, "--temp-dir=%s/tmp", g->home).p;
    if (site->stall_ms != 0) {
        w[n++] = arena_fmt(a, "--timeout=%u", site->stall_ms / 1000 + 1).p;
    }
    if (site->conf->max_size_bytes != 0) {
        w[n++] = arena_fmt(a, "--max-size=%llu", (unsigned long long)site->conf->max_size_bytes).p;
    }
    for (size_t i = 0; i < rules; i++) {
        w[n++] = arena_fmt(a, "--filter=%s", rule[i]).p;
    }
    if (is_ssh(site)) {
        (void)!ssh_url_parse(site->url, &ssh, NULL);
        w[n++] = "-e";
        w[n++] = shell(a, site, &ssh);
        w[n++] = "--";
        w[n++] = source_ssh(a, &ssh);
    } else {
        w[n++] = arena_fmt(a, "--contimeout=%u", site->connect_ms / 1000 + 1).p;
        w[n++] = "--";
        w[n++] = source_daemon(a, site);
    }
    w[n++] = "tree/";
    w[n] = NULL;
    return w;
}

/* As the program reads it: no scheme, a port in any case, escapes undone. NULL: straight. */
static const char *way_of(struct arena *a, const struct engine_site *site)
{
    struct buf user = BUF_INIT(PROXY_USER_MAX);
    struct rsync_url u;
    struct proxy p;
    bool through = false;
    const char *way = NULL;

    (void)!rsync_url_parse(site->url, &u, NULL);
    (void)!proxy_choose(site->proxy, site->no_proxy, u.host, &p, &through, NULL);
    if (through && url_decode(p.user, &user)) {
        way =
            arena_fmt(a, "RSYNC_PROXY=" SLICE_FMT "%s" SLICE_FMT ":%u", SLICE_ARG(buf_slice(&user)),
                      user.n != 0 ? "@" : "", SLICE_ARG(p.host), (unsigned)p.port)
                .p;
    }
    buf_free(&user);
    return way;
}

/* Of our own environment only what programs need: it may hold where secrets are. */
const char *const *exec_env(struct exec_engine *g)
{
    static const char *const passed_on[] = {"PATH", "HOME", "USER", "SSH_AUTH_SOCK", "TZ"};
    const struct engine_site *site = g->site;
    const char **env = arena_alloc(&g->arena, (ARRAY_LEN(passed_on) + 4) * sizeof *env);
    struct slice user = SLICE(""), password = secret_of(site, &user);
    const char *proxy;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        const char *value = getenv(passed_on[i]);
        if (value != NULL) {
            env[n++] = arena_fmt(&g->arena, "%s=%s", passed_on[i], value).p;
        }
    }
    env[n++] = "LC_ALL=C";
    if (!is_ssh(site)) { /* an empty one, too: else it would ask at a terminal, and wait */
        env[n++] = arena_fmt(&g->arena, "RSYNC_PASSWORD=" SLICE_FMT, SLICE_ARG(password)).p;
    }
    if (!is_ssh(site) && (proxy = way_of(&g->arena, site)) != NULL) {
        env[n++] = proxy;
    }
    env[n] = NULL;
    return env;
}
