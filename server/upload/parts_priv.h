/* parts_priv.h - parts from within, for parts.c (how an object is divided, its rows), parts_stage.c, part.c and parts_end.c alone. */
#ifndef SERVER_UPLOAD_PARTS_PRIV_H
#define SERVER_UPLOAD_PARTS_PRIV_H

#include "server/upload/joint.h"
#include "server/upload/parts.h"

enum { PARTS_NAME_BYTES = 5 + DIGEST_HEX + 12 };

/* parts.c. n: of a part; 0 for the object's own row. */
struct slice parts_row_name(const struct digest *d, uint32_t n, char out[PARTS_NAME_BYTES]);
/* f == NULL: it goes. */
void parts_row_put(const struct session *s, const struct digest *d, uint32_t n,
                   const struct session_file *f, struct batch *b);
MUST_USE int parts_row_load(struct store *store, const char *id, const struct digest *d, uint32_t n,
                            struct session_file *out, struct err *e);
/* All of an object's. */
void parts_rows_drop(struct store *store, const struct session *s, const struct digest *d,
                     const struct session_file *f, struct batch *b);

/* parts_stage.c. Opens the joint's stage, unless it is. E_BUSY: somebody is at it, or has just let go of it. */
MUST_USE int parts_stage_open(struct uploads *u, struct joint *j, const struct session *s,
                              struct err *e);
/* Takes the digest on, over parts that are durable and next in order, up to `most`. */
MUST_USE int parts_hash_on(struct uploads *u, struct joint *j, const struct session_file *awaited,
                           uint32_t most, struct err *e);

#endif
