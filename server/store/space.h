/* space.h - accounts for the disk's bytes: sealed blobs (commit.h), reservations of stages, parked
 * stages, free space, the ballast.
 *
 * The ballast is a file that holds space back. The first ENOSPC deletes it, so that RocksDB can
 * finish its writes and eviction can commit. It is made again when there is room.
 *
 * owns     struct space, from space_init() to space_fini()
 * threads  any; space_tick() may block for a statvfs or the ballast
 * errors   E_NOSPACE: the quota or the disk has no room
 */
#ifndef SERVER_STORE_SPACE_H
#define SERVER_STORE_SPACE_H

#include "common/os/lock.h"
#include "server/store/commit.h"
#include "server/store/store.h"

struct space {
    struct lock lock; /* LOCK_STORE */
    struct store_settings set;
    struct counts counts;
    uint64_t staged_bytes;  /* reserved by open stages */
    uint64_t written_bytes; /* of those, on disk */
    uint64_t parked_bytes;  /* of stages that are not open (stage.c) */
    uint64_t recent_bytes;  /* written since the last statvfs */
    uint64_t free_bytes;
    uint64_t reserve_bytes;
    uint64_t ballast_bytes; /* its size; 0 while it does not exist */
    uint64_t ballast_want;
    uint64_t looked_ms;
    bool full;
};

void space_init(struct space *x, const struct store_settings *set);
MUST_USE int space_open(struct store *s, struct err *e); /* the disk and the ballast */
void space_fini(struct space *x);
/* E_NOSPACE: the quota or the disk has no room for the bytes. */
MUST_USE int space_reserve(struct store *s, uint64_t bytes, struct err *e);
/* Puts bytes that are on disk already on a stage's account and reserves more. When it fails, it
 * does neither. */
MUST_USE int space_adopt(struct store *s, uint64_t have, uint64_t more, struct err *e);
/* Accounts for n bytes that a stage is about to write, and reserves what its reservation lacks. */
MUST_USE int space_write(struct store *s, uint64_t *reserved, uint64_t *written, uint64_t n,
                         struct err *e);
void space_release(struct store *s, uint64_t reserved, uint64_t written);
/* Files were removed to make room: the free space is measured again immediately. */
void space_freed(struct store *s);
void space_counted(struct store *s, const struct counts *c);
bool space_full(struct store *s);
/* What the disk has for RocksDB right now, and how much of it must stay free. One statvfs. */
uint64_t space_for_rows(struct store *s, uint64_t *margin_bytes);
/* A write failed with ENOSPC. */
void space_exhausted(struct store *s);
/* Measures the disk again. When there is room, the ballast is restored and `full` ends. */
void space_tick(struct store *s);

#endif
