/* share.h - what each client's fetches have written recently, and which objects they brought.
 *
 * Up to its share, what a client's fetches write within an hour may evict the least used object of
 * all. Beyond its share, a client may only evict objects that it brought itself, or objects that
 * have not been used for an hour (keeper.c). Two kinds of bytes are counted separately. The share
 * of objects is half of the quota unless a setting says otherwise. The share of ranges of objects
 * larger than the quota is a tenth of it for one client and half of it for all.
 *
 * The bytes of a client's own fetches that are not sealed yet will be the client's to evict. A
 * write that has no room waits for them for a while (fetch_admit()).
 *
 * An hour is counted in steps of ten minutes, and is up to 70 minutes long. All of it is in memory
 * and bounded: it has the SHARE_CLIENTS clients that wrote last and the SHARE_OBJECTS objects that
 * arrived last. Objects that are forgotten, also at a restart, are treated as other clients'
 * objects.
 *
 * owns     struct share, from share_open() to share_close()
 * threads  any; takes its own lock (LOCK_LEAF)
 * errors   share_refuse() sets E_NOSPACE with a sentence for the client
 */
#ifndef SERVER_CACHE_SHARE_H
#define SERVER_CACHE_SHARE_H

#include "common/base/err.h"
#include "common/hash/digest.h"
#include "server/store/store.h"

enum { SHARE_CLIENTS = 65536, SHARE_OBJECTS = 65536 };
enum share_kind {
    SHARE_OBJECT, /* objects that can be kept */
    SHARE_RANGE,  /* ranges of objects larger than the quota */
    SHARE_KINDS,
};

struct share;
struct share *share_open(void);
void share_close(struct share **sp);
void share_limit(struct share *s,
                 uint64_t client_bytes); /* of SHARE_OBJECT; 0: half of the quota */

/* What the client may still write before its share is used. client 0, the program itself:
 * UINT64_MAX. */
uint64_t share_left(struct share *s, uint64_t client, enum share_kind kind, uint64_t quota_bytes,
                    uint64_t now_s);
void share_wrote(struct share *s, uint64_t client, enum share_kind kind, uint64_t bytes,
                 uint64_t now_s);
/* Sets a sentence for the client that its share is used. The code is E_NOSPACE. */
int share_refuse(struct share *s, enum share_kind kind, const struct store_space *space,
                 struct err *e);

/* The client's fetch sealed a blob that was not in the store. A blob that belongs to another client
 * stays that client's. */
void share_contributed(struct share *s, uint64_t client, const struct digest *d,
                       uint64_t size_bytes);
void share_gone(struct share *s, const struct digest *d);
/* Up to `room` of the digests that the client brought, the oldest first. Returns their number. */
size_t share_own(struct share *s, uint64_t client, struct digest *out, size_t room);
uint64_t share_own_bytes(struct share *s, uint64_t client);

#endif
