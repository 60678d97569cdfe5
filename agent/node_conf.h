/* node_conf.h - the settings that a node's administrator makes for all users of the agent:
 * /etc/trainagent/trainagent.conf.
 *
 *   mirror = "http://mirror:8080"
 *   slurm { deadline = 30s  stage = {"hf/openai-community/gpt2@main"}  on_unreachable = warn }
 *
 * The syntax is libconfuse's (common/codec/settings.h); the keys are in agent/node_conf.def. The
 * command line comes first, then the environment, then this file. Slurm starts its programs with
 * neither, so for them only the file counts.
 *
 * owns     node_fini() frees; the texts live until then
 * threads  one at a time in the process (common/codec/settings.h)
 * errors   E_CONFIG: "file:line: what, why, what to do"; E_NOTFOUND: a file that was named does
 *          not exist
 */
#ifndef AGENT_NODE_CONF_H
#define AGENT_NODE_CONF_H

#include <sys/types.h>

#include "common/base/arena.h"
#include "common/base/err.h"

#define AGENT_NODE_FILE "/etc/trainagent/trainagent.conf"

enum node_act { ACT_FAIL, ACT_WARN };

#define NODE_TEXT    const char *
#define NODE_SPAN    uint64_t
#define NODE_TRUTH   bool
#define NODE_LIST    const char *const *
#define NODE_ACT     enum node_act
#define NODE_SIZE    uint64_t
#define NODE_PORT    uint64_t
#define NODE_PLACES  uint64_t
#define NODE_MIRRORS const char *

struct node_slurm {
#define SLURM_KEY(name, kind, absent, help) NODE_##kind name;
#include "agent/node_conf.def"
};

struct node_peers {
    bool on; /* the section is there */
#define PEERS_KEY(name, kind, absent, help) NODE_##kind name;
#include "agent/node_conf.def"
};

struct node_conf {
    struct arena arena;
#define FILE_KEY(name, kind, absent, help) NODE_##kind name;
#include "agent/node_conf.def"
    struct node_slurm slurm;
    struct node_peers peers;
};

/* The defaults. */
void node_init(struct node_conf *n);
/* path NULL: $TRAINAGENT_CONF, else AGENT_NODE_FILE, and if that does not exist it counts as
 * empty. On an error *out has the defaults. */
MUST_USE int node_read(const char *path, struct node_conf *out, struct err *e);
/* E_CONFIG: no such user. May query the network (NSS). */
MUST_USE int node_user(const struct node_conf *n, uid_t *uid, gid_t *gid, struct err *e);
/* Permanently, if we are root. Makes the local cache before, which its user could not. Root must
 * not make anything else in it: its user could not use that. */
MUST_USE int node_become(const struct node_conf *n, struct err *e);
/* Do the node's local cache and token belong to the present user? */
bool node_is_ours(const struct node_conf *n);
void node_fini(struct node_conf *n);

#endif
