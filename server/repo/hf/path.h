/* path.h - parses the raw path of a request to a Hub.
 *
 * Ids have one or two segments, so a route is found by its literal marker ("/tree/", "/resolve/"),
 * not by counting. The revision is one segment with %2F inside, and so is the path below /tree/;
 * below /resolve/ slashes are slashes. Everything is decoded here once, into bytes without control
 * characters and without "." and ".." segments.
 *
 * owns     slices live in the given arena
 * threads  any; pure
 * errors   E_INVALID: the path is impossible
 */
#ifndef SERVER_REPO_HF_PATH_H
#define SERVER_REPO_HF_PATH_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/codec/hub_id.h"

enum hf_route {
    HF_NONE,       /* nothing that a mirror has, or that the Hub should be asked for */
    HF_INFO,       /* api/{T}/{id}, .../revision/{rev} */
    HF_TREE,       /* .../tree/{rev}[/{path}] */
    HF_PATHS,      /* .../paths-info/{rev} */
    HF_REFS,       /* .../refs */
    HF_COMMITS,    /* .../commits/{rev} */
    HF_AUTH_CHECK, /* .../auth-check; verb "write": .../auth-check/write */
    HF_XET,        /* .../xet-read-token/{rev} */
    HF_XET_STORE,  /* .../xet/{commit}/{path}: our own (repo/hf/xet.h) */
    HF_XET_PUT,    /* .../xet-put/{upload}/{path}: our own, of hosted repositories */
    HF_FILE,       /* {P}{id}/resolve/{rev}/{path}, api/resolve-cache/{T}/{id}/{rev}/{path} */
    /* other data about a repository; verb: "discussions", "likers", "safetensors-metadata" */
    HF_ABOUT,
    /* api/buckets/{owner}[/{name}[/tree[/{path}] | /paths-info | /xet-read-token[/{rev}] |
     * /xet/{rev}/{path}]], buckets/{id}/resolve/{path}; type "buckets"; rev: a place in it, in an
     * address of ours (bucket.c); verb: "list", "info", "tree", "paths-info", "xet-read-token",
     * "xet", "resolve" */
    HF_BUCKET,
    HF_WRITE, /* any change of a repository */
    HF_WHOAMI,
    HF_TELEMETRY,
    HF_OTHER, /* api/...: lists and the like; nothing that leads to the Hub's chunk store */
};

struct hf_path {
    enum hf_route route;
    struct slice type;   /* "models", "datasets", "spaces", "kernels"; static */
    struct slice prefix; /* of resolve paths: "" or "datasets/" ...; static */
    struct slice id;     /* "name" or "owner/name" */
    struct slice rev;    /* decoded; p == NULL: not given */
    struct slice path;   /* decoded; "" for the root */
    bool raw;            /* HF_FILE: {P}{id}/raw/{rev}/{path}, the file as in git */
    struct slice other;  /* HF_OTHER and HF_WHOAMI: "api/...", with each segment escaped again */
    /* HF_AUTH_CHECK and HF_WRITE: "commit", "preupload" ..., "repos/create", "lfs-batch"; p ==
     * NULL: another. */
    struct slice verb;
};

MUST_USE int hf_path_parse(struct slice raw, struct arena *a, struct hf_path *out, struct err *e);
/* Is it a possible path in a repository? "" is one. */
bool hf_is_path(struct slice path);
/* Is it a file that a Hub shows to everybody, also of a gated repository? */
bool hf_is_card(struct slice path);

#endif
