/* xshard.h - parses a shard, in which a Xet client describes the files that it has uploaded: the
 * chunks of xorbs that each consists of, and its SHA-256.
 *
 * owns     results are slices of the given bytes
 * threads  any; pure
 * errors   E_PROTOCOL: not a shard
 * source   Xet Protocol Specification 1.1.0, "Shard": a head of 48 bytes, then per file a head, its
 *          terms, verification entries (skipped), and its SHA-256, all of 48 bytes each; the list
 *          ends with a head of 0xff. What follows it (the xorbs' own chunks, a footer) is not
 *          needed to assemble files
 */
#ifndef SERVER_REPO_HF_XSHARD_H
#define SERVER_REPO_HF_XSHARD_H

#include "common/hash/digest.h"

enum { XSHARD_HASH_HEX = 64 };

struct xshard_file {
    struct digest sha256;
    uint32_t terms;
    const uint8_t *term; /* see xshard_term() */
};
struct xshard_term {
    char xorb[XSHARD_HASH_HEX + 1]; /* as in URLs */
    uint32_t first, end;            /* chunks */
    uint32_t bytes;                 /* plain */
};

/* Calls each() for every file in order. E_PROTOCOL: not a shard; else the nonzero value that each()
 * returned. */
MUST_USE int xshard_each(struct slice bytes, int (*each)(void *arg, const struct xshard_file *f),
                         void *arg, struct err *e);
void xshard_term(const struct xshard_file *f, uint32_t i, struct xshard_term *out);

#endif
