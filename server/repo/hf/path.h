/* path.h - what a request to a Hub is about, read from its raw path.
 *
 * Ids have one or two segments, so a route is found by its literal marker ("/tree/", "/resolve/"),
 * not by counting. The revision arrives as one segment with %2F inside, the path below /tree/ too;
 * below /resolve/ slashes are slashes. Decoded here once, into bytes without control characters and
 * without "." and ".." segments.
 *
 * owns     slices live in the arena that is given
 * errors   E_INVALID: no such path can be
 */
#ifndef SERVER_REPO_HF_PATH_H
#define SERVER_REPO_HF_PATH_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/codec/hub_id.h"

enum hf_route {
    HF_NONE,       /* nothing of the Hub's that a mirror has, or should be asked for */
    HF_INFO,       /* api/{T}/{id}, .../revision/{rev} */
    HF_TREE,       /* .../tree/{rev}[/{path}] */
    HF_PATHS,      /* .../paths-info/{rev} */
    HF_REFS,       /* .../refs */
    HF_COMMITS,    /* .../commits/{rev} */
    HF_AUTH_CHECK, /* .../auth-check; verb "write": .../auth-check/write */
    HF_XET,        /* .../xet-read-token/{rev} */
    HF_XET_STORE,  /* .../xet/{commit}/{path}: ours (repo/hf/xet.h) */
    HF_XET_PUT,    /* .../xet-put/{upload}/{path}: ours, of hosted repositories */
    HF_FILE,       /* {P}{id}/resolve/{rev}/{path}, api/resolve-cache/{T}/{id}/{rev}/{path} */
    HF_ABOUT, /* what else is known of a repository; verb: "discussions", "likers", "safetensors-metadata" */
    HF_BUCKET, /* api/buckets/{owner}[/{name}[/tree[/{path}] | /paths-info | /xet-read-token[/{rev}] | /xet/{rev}/{path}]],
                * buckets/{id}/resolve/{path}; type "buckets"; rev: a place in it, of an address of ours (bucket.c);
                * verb: "list", "info", "tree", "paths-info", "xet-read-token", "xet", "resolve" */
    HF_WRITE,  /* whatever changes a repository */
    HF_WHOAMI,
    HF_TELEMETRY,
    HF_OTHER, /* api/...: lists and the like; nothing that leads to the Hub's chunk store */
};

struct hf_path {
    enum hf_route route;
    struct slice type;   /* "models", "datasets", "spaces", "kernels"; static */
    struct slice prefix; /* of resolve paths: "" or "datasets/" ...; static */
    struct slice id;     /* "name" or "owner/name" */
    struct slice rev;    /* decoded; p == NULL: none was said */
    struct slice path;   /* decoded; "" for the root */
    bool raw;            /* of HF_FILE: {P}{id}/raw/{rev}/{path}, a file as git has it */
    struct slice other;  /* of HF_OTHER and HF_WHOAMI: "api/...", each segment escaped anew */
    /* of HF_AUTH_CHECK, and of HF_WRITE: "commit", "preupload" ..., "repos/create", "lfs-batch";
     * p == NULL: another */
    struct slice verb;
};

MUST_USE int hf_path_parse(struct slice raw, struct arena *a, struct hf_path *out, struct err *e);
/* Bytes that a path in a repository can be; "" is one. */
bool hf_is_path(struct slice path);
/* What a Hub shows to everybody of a gated repository. */
bool hf_is_card(struct slice path);

#endif
