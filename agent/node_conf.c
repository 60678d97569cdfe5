#include "agent/node_conf.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/codec/settings.h"
#include "common/codec/units.h"

/* --- the grammar ------------------------------------------------------------------------------ */

enum section { SECTION_FILE, SECTION_SLURM, SECTION_PEERS };

#define IS_TEXT    false
#define IS_SPAN    false
#define IS_TRUTH   false
#define IS_LIST    true
#define IS_ACT     false
#define IS_SIZE    false
#define IS_PORT    false
#define IS_PLACES  false
#define IS_MIRRORS true

static const struct settings_key in_file[] = {
#define FILE_KEY(name, kind, absent, help) {#name, IS_##kind},
#include "agent/node_conf.def"
};
static const struct settings_key in_slurm[] = {
#define SLURM_KEY(name, kind, absent, help) {#name, IS_##kind},
#include "agent/node_conf.def"
};
static const struct settings_key in_peers[] = {
#define PEERS_KEY(name, kind, absent, help) {#name, IS_##kind},
#include "agent/node_conf.def"
};

static const struct settings_section sections[] = {
    [SECTION_FILE] = {"", 0, SETTINGS_ONCE, in_file, ARRAY_LEN(in_file)},
    [SECTION_SLURM] = {"slurm", 0, SETTINGS_ONCE, in_slurm, ARRAY_LEN(in_slurm)},
    [SECTION_PEERS] = {"peers", 0, SETTINGS_ONCE, in_peers, ARRAY_LEN(in_peers)},
};

static const struct settings_grammar grammar = {
    .sections = sections,
    .nsections = ARRAY_LEN(sections),
    .manual = "trainagent.conf(5)",
    .absent = "name another with --node-file",
};

/* --- values: nd is NULL for a section that is not written ------------------------------------- */

static int read_TEXT(struct node_conf *n, const struct settings_node *nd, const char *key,
                     const char *absent, const char **out, struct err *e)
{
    const char *text = settings_text(nd, key, absent);

    (void)n;
    (void)e;
    *out = text != NULL && text[0] != '\0' ? text : absent;
    return 0;
}

static int read_MIRRORS(struct node_conf *n, const struct settings_node *nd, const char *key,
                        const char *absent, const char **out, struct err *e)
{
    (void)e;
    *out = settings_joined(nd, key, &n->arena);
    *out = *out != NULL && (*out)[0] != '\0' ? *out : absent;
    return 0;
}

static int read_SPAN(struct node_conf *n, const struct settings_node *nd, const char *key,
                     const char *absent, uint64_t *out, struct err *e)
{
    (void)n;
    return span_parse(slice_str(settings_text(nd, key, absent)), out)
               ? 0
               : settings_bad(nd, key, "is not a time span; write one such as 30s", e);
}

static int read_SIZE(struct node_conf *n, const struct settings_node *nd, const char *key,
                     const char *absent, uint64_t *out, struct err *e)
{
    (void)n;
    return size_parse(slice_str(settings_text(nd, key, absent)), out)
               ? 0
               : settings_bad(nd, key, "is not a size; write one such as 64m", e);
}

static int read_PORT(struct node_conf *n, const struct settings_node *nd, const char *key,
                     const char *absent, uint64_t *out, struct err *e)
{
    (void)n;
    return slice_u64(slice_str(settings_text(nd, key, absent)), out) && *out <= UINT16_MAX
               ? 0
               : settings_bad(nd, key, "is not a port; write 1 to 65535, or 0 for any free port",
                              e);
}

static int read_PLACES(struct node_conf *n, const struct settings_node *nd, const char *key,
                       const char *absent, uint64_t *out, struct err *e)
{
    (void)n;
    return slice_u64(slice_str(settings_text(nd, key, absent)), out) && *out >= 1 && *out <= 256
               ? 0
               : settings_bad(nd, key, "is not a number from 1 to 256; write one", e);
}

static int read_TRUTH(struct node_conf *n, const struct settings_node *nd, const char *key,
                      const char *absent, bool *out, struct err *e)
{
    (void)n;
    return settings_truth(settings_text(nd, key, absent), out)
               ? 0
               : settings_bad(nd, key, "is neither true nor false; write one of them", e);
}

static int read_ACT(struct node_conf *n, const struct settings_node *nd, const char *key,
                    const char *absent, enum node_act *out, struct err *e)
{
    struct slice text = slice_str(settings_text(nd, key, absent));

    (void)n;
    *out = slice_eqs(text, "warn") ? ACT_WARN : ACT_FAIL;
    return *out == ACT_WARN || slice_eqs(text, "fail")
               ? 0
               : settings_bad(nd, key, "is neither fail nor warn; write one of them", e);
}

/* NULL: not written, which is not the same as empty. */
static int read_LIST(struct node_conf *n, const struct settings_node *nd, const char *key,
                     const char *absent, const char *const **out, struct err *e)
{
    size_t count;

    (void)absent;
    (void)e;
    *out =
        nd != NULL && settings_written(nd, key) ? settings_texts(nd, key, &n->arena, &count) : NULL;
    return 0;
}

/* --- the file --------------------------------------------------------------------------------- */

static int take_file(struct node_conf *n, const struct settings_node *nd, struct err *e)
{
    int rc = 0;

#define FILE_KEY(name, kind, absent, help)                                                         \
    rc = rc != 0 ? rc : read_##kind(n, nd, #name, absent, &n->name, e);
#include "agent/node_conf.def"
    n->cache = n->cache != NULL ? n->cache : n->shelf;
    return rc;
}

static int take_slurm(struct node_conf *n, const struct settings_node *nd, struct err *e)
{
    struct node_slurm *s = &n->slurm;
    int rc = 0;

#define SLURM_KEY(name, kind, absent, help)                                                        \
    rc = rc != 0 ? rc : read_##kind(n, nd, #name, absent, &s->name, e);
#include "agent/node_conf.def"
    return rc;
}

static int take_peers(struct node_conf *n, const struct settings_node *nd, struct err *e)
{
    struct node_peers *s = &n->peers;
    int rc = 0;

    s->on = nd != NULL;
#define PEERS_KEY(name, kind, absent, help)                                                        \
    rc = rc != 0 ? rc : read_##kind(n, nd, #name, absent, &s->name, e);
#include "agent/node_conf.def"
    return rc;
}

void node_init(struct node_conf *n)
{
    int rc;

    *n = (struct node_conf){0};
    rc = take_file(n, NULL, NULL);
    rc = rc != 0 ? rc : take_slurm(n, NULL, NULL);
    rc = rc != 0 ? rc : take_peers(n, NULL, NULL);
    CHECK(rc == 0);
}

static int read_node_keys(struct node_conf *n, const struct settings_node *root, struct err *e)
{
    int rc = take_file(n, root, e);

    rc = rc != 0 ? rc : take_slurm(n, settings_child(root, SECTION_SLURM), e);
    return rc != 0 ? rc : take_peers(n, settings_child(root, SECTION_PEERS), e);
}

int node_read(const char *path, struct node_conf *out, struct err *e)
{
    const char *env = getenv("TRAINAGENT_CONF");
    struct settings_node *root;
    bool named = path != NULL || (env != NULL && env[0] != '\0');
    int rc;

    node_init(out);
    path = path != NULL ? path : named ? env : AGENT_NODE_FILE;
    if (access(path, R_OK) == -1) {
        rc = err_sys(e, "%s", path);
        return rc == E_NOTFOUND && !named ? 0 : rc;
    }
    rc = settings_read(&grammar, path, &out->arena, &root, e);
    rc = rc != 0 ? rc : read_node_keys(out, root, e);
    if (rc != 0) {
        node_fini(out);
    }
    return rc;
}

int node_user(const struct node_conf *n, uid_t *uid, gid_t *gid, struct err *e)
{
    char room[16 << 10];
    struct passwd pw;
    struct passwd *found = NULL;

    if (getpwnam_r(n->user, &pw, room, sizeof room, &found) != 0 || found == NULL) {
        return err_set(
            e, E_CONFIG,
            "user \"%.60s\" does not exist on this machine; run systemd-sysusers to create it",
            n->user);
    }
    *uid = pw.pw_uid;
    *gid = pw.pw_gid;
    return 0;
}

/* For good: the user's rights and nobody else's. */
static int take_rights(uid_t uid, gid_t gid, struct err *e)
{
    if (geteuid() == uid && getuid() == uid) {
        return 0;
    }
    if (setgroups(0, NULL) == -1 || setresgid(gid, gid, gid) == -1 ||
        setresuid(uid, uid, uid) == -1 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1) {
        return err_sys(e, "cannot switch to user %u", (unsigned)uid);
    }
    return 0;
}

int node_become(const struct node_conf *n, struct err *e)
{
    uid_t uid;
    gid_t gid;
    int rc = geteuid() == 0 ? node_user(n, &uid, &gid, e) : 0;

    if (rc != 0 || geteuid() != 0) {
        return rc;
    }
    if (mkdir(n->cache, 0755) == 0 && chown(n->cache, uid, gid) == -1) {
        return err_sys(e, "%s", n->cache);
    }
    return take_rights(uid, gid, e);
}

bool node_is_ours(const struct node_conf *n)
{
    uid_t uid;
    gid_t gid;

    return geteuid() == 0 || (node_user(n, &uid, &gid, NULL) == 0 && uid == geteuid());
}

void node_fini(struct node_conf *n)
{
    arena_fini(&n->arena);
    node_init(n);
}
