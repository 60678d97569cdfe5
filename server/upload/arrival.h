/* arrival.h - a file of a session while its bytes come: made durable now and then, and left to be
 * gone on with.
 *
 * Data, then the row that speaks of it: what a row tells is on the disk. The row of a stage is
 * there before its first byte, so that no sweep takes it.
 *
 * owns     the ingest, until it is sealed, parked or dropped; the session, its path and the charge
 *          are the owner's
 * threads  one at a time; blocks
 */
#ifndef SERVER_UPLOAD_ARRIVAL_H
#define SERVER_UPLOAD_ARRIVAL_H

#include "server/store/ingest.h"
#include "server/upload/live.h"
#include "server/upload/session.h"

struct arrival {
    const struct session *session;
    struct charge *charge;
    struct slice path;
    uint64_t total;    /* of the whole file, as announced; UINT64_MAX: unknown */
    struct ingest *in; /* NULL: not yet, or not any more */
    uint64_t saved;    /* bytes that a row tells of */
};

uint64_t arrival_bytes(const struct arrival *a); /* of the file that are here */
/* Adds to b: its row says that; NULL: it goes. */
void arrival_put(const struct arrival *a, const struct session_file *f, struct batch *b);
/* The first row of a stage, before its bytes. Takes *bp (NULL: a batch of its own). */
MUST_USE int arrival_begin(struct arrival *a, struct batch **bp, struct err *e);
MUST_USE int arrival_save(struct arrival *a, enum durability how, struct err *e);
/* The same, where enough has come since. */
MUST_USE int arrival_save_if_due(struct arrival *a, struct err *e);
/* The request ends, or breaks off. True: what is here is durable, what is not has gone, and the
 * ingest may be parked. False: nobody goes on with it, and it is dropped. */
MUST_USE bool arrival_settle(struct arrival *a);

#endif
