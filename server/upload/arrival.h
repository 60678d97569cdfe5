/* arrival.h - a file of a session while its bytes come: made durable from time to time, and left in
 * a state that can be resumed.
 *
 * Data is written before the row that mentions it, so everything in a row is on disk. The row of a
 * stage exists before its first byte, so that no sweep removes the stage.
 *
 * owns     the ingest, until it is sealed, parked or dropped; the session, its path and the charge
 *          belong to the owner
 * threads  one at a time; blocks
 * errors   as ingest.h
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
    struct ingest *in; /* NULL: not open yet, or not any more */
    uint64_t saved;    /* bytes that a row mentions */
};

uint64_t arrival_bytes(const struct arrival *a); /* the bytes of the file that are present */
/* Adds its row to b; f == NULL: removes the row. */
void arrival_put(const struct arrival *a, const struct session_file *f, struct batch *b);
/* Writes the first row of a stage, before its bytes. Takes *bp (NULL: a batch of its own). */
MUST_USE int arrival_begin(struct arrival *a, struct batch **bp, struct err *e);
MUST_USE int arrival_save(struct arrival *a, enum durability how, struct err *e);
/* The same, if enough has arrived since the last time. */
MUST_USE int arrival_save_if_due(struct arrival *a, struct err *e);
/* The request ends or is cut off. True: the present bytes are durable, the others are gone, and the
 * ingest may be parked. False: it will not be resumed, and is dropped. */
MUST_USE bool arrival_settle(struct arrival *a);

#endif
