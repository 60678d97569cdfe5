#include "agent/agent.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/codec/network.h"
#include "common/codec/url.h"

enum { TOKEN_MAX = 4096 };

void agent_init(struct agent *a)
{
    *a = (struct agent){.connections = 8, .tries = 7, .idle_timeout_s = 60};
    node_init(&a->node);
}

void agent_fini(struct agent *a)
{
    local_cache_close(&a->local_cache);
    mirrors_close(&a->mirrors);
    node_fini(&a->node);
    arena_fini(&a->arena);
}

static const char *from_environment(const char *given, const char *name)
{
    const char *env = getenv(name);

    return given != NULL ? given : env != NULL && env[0] != '\0' ? env : NULL;
}

/* root's local cache is the node's; a user has one at home. */
static const char *default_folder(struct agent *a, const char *system, const char *xdg,
                                  const char *below_home)
{
    const char *base = from_environment(NULL, xdg);
    const char *home = from_environment(NULL, "HOME");

    if (base != NULL && geteuid() != 0) {
        return arena_fmt(&a->arena, "%s/trainagent", base).p;
    }
    if (home != NULL && geteuid() != 0) {
        return arena_fmt(&a->arena, "%s/%s/trainagent", home, below_home).p;
    }
    return system;
}

static bool is_loopback(struct slice host)
{
    struct network n;

    return slice_ieq(host, SLICE("localhost")) ||
           (network_parse(host, &n) && n.bits == 128 && address_is_loopback(n.address));
}

/* The token is for every mirror of the list. */
static int check_plaintext(const struct agent *a, struct err *e)
{
    for (unsigned i = 0; i < mirrors_count(a->mirrors) && !a->plaintext_token; i++) {
        struct url u;

        CHECK(url_split(mirrors_url(a->mirrors, i), &u, NULL) == 0);
        if (!u.tls && !is_loopback(u.host)) {
            return err_set(e, E_DENIED,
                           "the token would be sent over plain HTTP to " SLICE_FMT
                           ", where anyone may read it; use https:// or --plaintext-token",
                           SLICE_ARG(u.host));
        }
    }
    return 0;
}

static int read_token(struct agent *a, struct err *e)
{
    struct buf text = BUF_INIT(TOKEN_MAX);
    struct slice token;
    int rc = buf_read_file(&text, a->token_file, e);

    if (rc != 0) {
        goto out;
    }
    token = buf_slice(&text);
    while (token.n > 0 && (uint8_t)token.p[token.n - 1] <= ' ') {
        token.n--;
    }
    for (size_t i = 0; i < token.n; i++) {
        if ((uint8_t)token.p[i] <= ' ' || (uint8_t)token.p[i] >= 0x7f) {
            rc = err_set(e, E_CONFIG, "%s: the token file must hold one token on one line",
                         a->token_file);
            goto out;
        }
    }
    if (token.n == 0) {
        rc = err_set(
            e, E_CONFIG,
            "%s: the token file is empty; write the token into it, or unset TRAINAGENT_TOKEN_FILE",
            a->token_file);
        goto out;
    }
    rc = check_plaintext(a, e);
    if (rc != 0) {
        goto out;
    }
    a->auth_line = arena_fmt(&a->arena, "Authorization: Bearer " SLICE_FMT, SLICE_ARG(token));
out:
    explicit_bzero(text.p, text.n);
    buf_free(&text);
    return rc;
}

static int settle_mirror(struct agent *a, bool needed, struct err *e)
{
    int rc;

    if (a->mirror.n == 0) {
        const char *env = from_environment(NULL, "TRAINAGENT_MIRROR");
        a->mirror = slice_str(env != NULL ? env : a->node.mirror);
    }
    if (a->mirror.n == 0) {
        return needed
                   ? err_set(
                         e, E_USAGE,
                         "no mirror is configured; set TRAINAGENT_MIRROR=http://mirror:8080, use "
                         "--mirror, or set mirror in " AGENT_NODE_FILE)
                   : 0;
    }
    rc = a->mirrors != NULL ? 0 : mirrors_open(a->mirror, &a->mirrors, e);
    if (rc == 0) {
        a->mirror = mirrors_url(a->mirrors, 0);
    }
    return rc;
}

/* A user's own come first, and are all that a user has: the node's local cache is not for everybody
 * to write on. */
static void settle_places(struct agent *a)
{
    bool ours;

    a->local_cache_dir = from_environment(a->local_cache_dir, "TRAINAGENT_CACHE");
    a->local_cache_dir = from_environment(a->local_cache_dir, "TRAINAGENT_SHELF"); /* formerly */
    a->state_dir = from_environment(a->state_dir, "TRAINAGENT_STATE");
    a->token_file = from_environment(a->token_file, "TRAINAGENT_TOKEN_FILE");
    a->ca_file = from_environment(a->ca_file, "TRAINAGENT_CA_FILE");
    a->ca_file = a->ca_file != NULL ? a->ca_file : a->node.ca_file;
    ours = (a->local_cache_dir == NULL || a->token_file == NULL) && node_is_ours(&a->node);
    if (ours && a->token_file == NULL && a->mirrors != NULL &&
        mirrors_are_in(a->mirrors, slice_str(a->node.mirror))) { /* no other learns the token */
        a->token_file = a->node.token_file;
        a->plaintext_token = a->plaintext_token || a->node.plaintext_token;
    }
    if (a->local_cache_dir == NULL) {
        a->local_cache_dir =
            ours ? a->node.cache : default_folder(a, a->node.cache, "XDG_CACHE_HOME", ".cache");
    }
    if (a->state_dir == NULL) {
        a->state_dir = default_folder(a, "/var/lib/trainagent", "XDG_STATE_HOME", ".local/state");
    }
}

int agent_settle(struct agent *a, bool needs_mirror, struct err *e)
{
    int rc = node_read(a->conf_file, &a->node, e);

    rc = rc != 0 ? rc : settle_mirror(a, needs_mirror, e);
    if (rc == 0) {
        settle_places(a);
        a->peers = a->peers || a->node.peers.on;
    }
    return rc;
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;

    return strcmp(a, b) == 0 ||
           (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* What root makes there is not the user's to write, and from then on no job of Slurm's would get
 * its files. */
static int leave_local_cache_to_its_user(const struct agent *a, bool yields, struct err *e)
{
    uid_t uid;
    gid_t gid;

    if (geteuid() != 0 || !same_folder(a->local_cache_dir, a->node.cache) ||
        node_user(&a->node, &uid, &gid, NULL) != 0 || uid == 0) {
        return 0;
    }
    return yields
               ? node_become(&a->node, e)
               : err_set(e, E_DENIED,
                         "the local cache %.80s belongs to the user %.32s, who could not use files "
                         "that root creates there; run runuser -u %.32s -- trainagent ..., or give "
                         "--cache DIR",
                         a->local_cache_dir, a->node.user, a->node.user);
}

int agent_open(struct agent *a, unsigned use, struct err *e)
{
    int rc = agent_settle(a, (use & AGENT_MIRROR) != 0, e);

    if (rc == 0 && a->token_file != NULL && a->mirror.n != 0) {
        rc = read_token(a, e);
    }
    rc = rc != 0 ? rc : leave_local_cache_to_its_user(a, (use & AGENT_YIELDS) != 0, e);
    return rc != 0 ? rc : local_cache_open(a->local_cache_dir, &a->local_cache, e);
}
