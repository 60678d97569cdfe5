/* agent.h - the settings that every verb needs: the mirror, the local cache, the token, the
 * output.
 *
 * They come from the command line, else the environment ($TRAINAGENT_MIRROR, _CACHE, _STATE,
 * _TOKEN_FILE, _CA_FILE), else the node's file (node_conf.h). The token of the node's file is
 * used only by root and the node's own user, for the node's mirror; its local cache belongs to
 * that user.
 *
 * owns     agent_fini() frees; the strings live until then
 * threads  read-only after agent_open()
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "agent/node_conf.h"
#include "agent/cache/cache.h"
#include "agent/mirrors.h"
#include "common/base/arena.h"

/* The advice when no trusted CA has signed the mirror's certificate. */
#define AGENT_NO_ISSUER                                                                            \
    "name its cert.pem with --ca-file, TRAINAGENT_CA_FILE or ca_file in trainagent.conf"

struct agent {
    struct arena arena;
    struct node_conf node;
    const char *conf_file; /* of the node; NULL: the default one */
    /* As given, with commas between several; after agent_settle() the first of the list, below
     * which all URLs are written: "http://mirror:8080/prefix", no '/' at the end. */
    struct slice mirror;
    struct mirrors *mirrors; /* NULL: none */
    const char *local_cache_dir;
    const char *state_dir; /* of jobs */
    const char *ca_file;   /* NULL: the system's */
    const char *token_file;
    struct slice auth_line; /* "Authorization: Bearer ...", n == 0 without a token */
    struct local_cache *local_cache;
    unsigned connections; /* simultaneous, over all files */
    /* consecutive failures of the network without progress; the pauses double from 0.1 s */
    unsigned tries;
    unsigned idle_timeout_s;
    bool plaintext_token;
    bool lingers; /* the end of the verb may wait for other nodes: peers { linger } */
    bool peers;   /* fetch from and give to other nodes */
    bool json;
    bool quiet;
    bool copy; /* place copies, never hard links */
    /* placed files need not be synced: after a power cut their job does not exist any more */
    bool fleeting;
};

/* How a verb uses it. */
enum agent_use {
    AGENT_MIRROR = 1, /* E_USAGE without a mirror */
    /* root becomes the node's user if the local cache is the node's; else that is E_DENIED */
    AGENT_YIELDS = 2,
};

void agent_init(struct agent *a);
/* Fills in what the command line did not give, and changes nothing else. needs_mirror: E_USAGE
 * without one. */
MUST_USE int agent_settle(struct agent *a, bool needs_mirror, struct err *e);
/* The same, and reads the token and opens the local cache. use: values of enum agent_use,
 * combined by or. */
MUST_USE int agent_open(struct agent *a, unsigned use, struct err *e);
void agent_fini(struct agent *a);

#endif
