/* sender.h - what follows the list: the client asks for entries by their index, and gets files whole, until it has said goodbye.
 *
 * The client's block sums are read past: an answer of literals alone is always right, and costs us no more than reading the file.
 *
 * owns     the state of its sums and of its compression; sender_fini()
 * threads  its session's own; blocks
 * errors   E_PROTOCOL: requests that cannot be; those of the stream
 * source   research/sync 1.1 (8 to 10); sessions of the installed client and server
 */
#ifndef SERVER_RSYNC_SENDER_H
#define SERVER_RSYNC_SENDER_H

#include "server/rsync/listing.h"
#include "server/rsync/literal.h"
#include "server/rsync/stream.h"
#include "server/rsync/view.h"
#include "server/sync/rsync/checksum.h"
#include "server/sync/rsync/varint.h"

struct sender {
    struct stream *stream;
    const struct listing *listing;
    const struct view *view;
    const char *module; /* for the log */
    unsigned version;
    bool dry_run;
    uint64_t files, bytes; /* that were sent */
    struct index_coding coming, going;
    struct checksum sum;
    struct literal literal;
    char block[LITERAL_PIECE];
};

/* The fields up to dry_run are the caller's to fill. */
/* skip: endings of names that are not compressed; borrowed. */
void sender_init(struct sender *s, struct stream *stream, enum checksum_kind kind,
                 enum literal_kind literal, struct slice skip);
MUST_USE int sender_run(struct sender *s, struct err *e);
void sender_fini(struct sender *s);

#endif
