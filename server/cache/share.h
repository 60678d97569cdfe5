/* share.h - what each client's fetches have written of late, and which objects they brought.
 *
 * What a client's fetches write within an hour, up to its share, puts out the least used of all.
 * Beyond its share a client puts out what it brought itself, or what nobody has used for an hour
 * (keeper.c). Two kinds of bytes are counted apart: objects, of which a share is half of the quota
 * unless a setting says otherwise, and ranges of objects that are larger than the quota, a tenth of
 * it for one client and half for all.
 *
 * What its own fetches hold that are not sealed yet will be the client's to put out: a write that
 * has no room waits for them, for a while (fetch_admit()).
 *
 * An hour is counted in steps of ten minutes, and is up to 70 minutes long. All of it is in memory,
 * and bounded: the SHARE_CLIENTS clients that wrote last, the SHARE_OBJECTS objects that came last.
 * What is forgotten, at a restart too, is others'.
 *
 * threads  any; takes its own lock (LOCK_LEAF)
 */
#ifndef SERVER_CACHE_SHARE_H
#define SERVER_CACHE_SHARE_H

#include "common/base/err.h"
#include "common/hash/digest.h"

enum { SHARE_CLIENTS = 65536, SHARE_OBJECTS = 65536 };
enum share_kind {
    SHARE_OBJECT, /* of what can be kept */
    SHARE_RANGE,  /* of what is larger than the quota */
    SHARE_KINDS,
};

struct share;
struct share *share_open(void);
void share_close(struct share **sp);
void share_limit(struct share *s,
                 uint64_t client_bytes); /* of SHARE_OBJECT; 0: half of the quota */

/* What the client may still write before it has had its share. client 0, the program itself:
 * UINT64_MAX. */
uint64_t share_left(struct share *s, uint64_t client, enum share_kind kind, uint64_t quota_bytes,
                    uint64_t now_s);
void share_wrote(struct share *s, uint64_t client, enum share_kind kind, uint64_t bytes,
                 uint64_t now_s);
/* A sentence for the client: it has had its share. The code is E_NOSPACE. */
int share_refuse(struct share *s, enum share_kind kind, uint64_t quota_bytes, struct err *e);

/* The client's fetch sealed a blob that was not here. One that is somebody's stays theirs. */
void share_contributed(struct share *s, uint64_t client, const struct digest *d,
                       uint64_t size_bytes);
void share_gone(struct share *s, const struct digest *d);
/* Up to `room` of those that the client brought, the oldest first; their number. */
size_t share_own(struct share *s, uint64_t client, struct digest *out, size_t room);
uint64_t share_own_bytes(struct share *s, uint64_t client);

#endif
