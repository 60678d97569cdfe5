/* agent.h - what every verb knows: the mirror, the local cache, the token, how to speak to people.
 *
 * Comes from the command line, else the environment ($TRAINAGENT_MIRROR, _SHELF, _STATE,
 * _TOKEN_FILE, _CA_FILE), else the node's file (node_conf.h), whose token is root's and the node's
 * own user's alone, for the node's mirror, and whose local cache is that user's.
 *
 * owns     agent_fini() frees; the strings live until then
 * threads  read-only after agent_open()
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "agent/node_conf.h"
#include "agent/cache/cache.h"
#include "common/base/arena.h"
#include "common/codec/url.h"

/* What to do when no authority that this agent trusts vouches for the mirror. */
#define AGENT_NO_ISSUER                                                                            \
    "give its cert.pem: --ca-file, TRAINAGENT_CA_FILE, or ca_file in trainagent.conf"

struct agent {
    struct arena arena;
    struct node_conf node;
    const char *conf_file; /* of the node; NULL: the usual one */
    struct slice mirror;   /* "http://mirror:8080/prefix", no '/' at the end */
    struct url mirror_url;
    const char *local_cache_dir;
    const char *state_dir; /* of jobs */
    const char *ca_file;   /* NULL: the system's */
    const char *token_file;
    struct slice auth_line; /* "Authorization: Bearer ...", n == 0 without a token */
    struct local_cache *local_cache;
    unsigned connections; /* at once, over all files */
    unsigned tries;       /* of the network in a row, without progress; they double from 0.1 s */
    unsigned idle_timeout_s;
    bool plaintext_token;
    bool lingers; /* who waits for the verb's end waits for other nodes, too: peers { linger } */
    bool peers;   /* fetch from and give to other nodes */
    bool json;
    bool quiet;
    bool copy; /* place copies, never hard links */
    /* what is placed goes with its job: after a power cut there is no such job, and nothing need
     * be synced */
    bool fleeting;
};

/* Of what a verb does with it. */
enum agent_use {
    AGENT_MIRROR = 1, /* E_USAGE without one */
    AGENT_YIELDS =
        2, /* root gives itself up for the node's user, where the local cache is the node's; else that is E_DENIED */
};

void agent_init(struct agent *a);
/* Fills in what the command line left open, and touches nothing. needs_mirror: E_USAGE without
 * one. */
MUST_USE int agent_settle(struct agent *a, bool needs_mirror, struct err *e);
/* The same, and reads the token, opens the local cache. use: of enum agent_use, or'ed. */
MUST_USE int agent_open(struct agent *a, unsigned use, struct err *e);
void agent_fini(struct agent *a);

#endif
