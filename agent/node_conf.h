/* node_conf.h - what a node's administrator says once for all who use the agent there:
 * /etc/trainagent/trainagent.conf.
 *
 *   mirror = "http://mirror:8080"
 *   slurm { deadline = 30s  stage = {"hf/openai-community/gpt2@main"}  on_unreachable = warn }
 *
 * libconfuse syntax (common/codec/settings.h); the keys are agent/node_conf.def's. The command line
 * counts first, then the environment, then this. Slurm starts its programs with neither: to them it
 * is all there is.
 *
 * owns     node_fini() frees; the texts live until then
 * threads  one at a time in the process (common/codec/settings.h)
 * errors   E_CONFIG: "file:line: what, why, what to do"; E_NOTFOUND: a file that was named is not
 *          there
 */
#ifndef AGENT_NODE_CONF_H
#define AGENT_NODE_CONF_H

#include <sys/types.h>

#include "common/base/arena.h"
#include "common/base/err.h"

#define AGENT_NODE_FILE "/etc/trainagent/trainagent.conf"

enum node_act { ACT_FAIL, ACT_WARN };

#define NODE_TEXT   const char *
#define NODE_SPAN   uint64_t
#define NODE_TRUTH  bool
#define NODE_LIST   const char *const *
#define NODE_ACT    enum node_act
#define NODE_SIZE   uint64_t
#define NODE_PORT   uint64_t
#define NODE_PLACES uint64_t

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

/* What holds where nothing is written. */
void node_init(struct node_conf *n);
/* path NULL: $TRAINAGENT_CONF, else AGENT_NODE_FILE, and no such file is an empty one. When it
 * fails *out is as node_init() leaves it. */
MUST_USE int node_read(const char *path, struct node_conf *out, struct err *e);
/* E_CONFIG: there is no such user. May ask the network (NSS). */
MUST_USE int node_user(const struct node_conf *n, uid_t *uid, gid_t *gid, struct err *e);
/* For good, where root is who we are, and makes the local cache before, which its user could not.
 * Nothing else may be made on it by root: its user could not use that. */
MUST_USE int node_become(const struct node_conf *n, struct err *e);
/* Do the node's local cache and token belong to whoever we are? */
bool node_is_ours(const struct node_conf *n);
void node_fini(struct node_conf *n);

#endif
