/* gift.h - what this process gives to others: files by digest, of each the chunks that are verified and written.
 *
 * A pull offers its partial file and says of each chunk when it is there; the giving thread finds it by its digest and sends from the
 * open file, which stays the same one when it gets its name on the shelf. One that is withdrawn begins nothing from then on, for those
 * who hold it either; a chunk that is on its way goes on.
 *
 * owns     counted: gifts_offer() and gifts_find() give a reference each, gift_drop() takes one; the file is a duplicate of the pull's
 * threads  any, all of it: LOCK_GIFTS
 */
#ifndef AGENT_PEERS_GIFT_H
#define AGENT_PEERS_GIFT_H

#include "common/hash/digest.h"
#include "common/xfer/psk.h"

struct gifts;
struct gift;

struct gifts *gifts_open(void);
void gifts_close(struct gifts **gp); /* all references have been dropped */

/* Nobody can ask for it before it has a key. */
MUST_USE int gifts_offer(struct gifts *g, const struct digest *d, uint64_t size_bytes, int fd,
                         struct gift **out, struct err *e);
void gift_key(struct gift *x, const uint8_t key[PSK_KEY_BYTES]);
void gift_chunk(struct gift *x, size_t i, bool there);
void gift_withdraw(struct gift *x);
void gift_drop(struct gift **xp); /* NULL is fine */

/* NULL: nothing of that name, or it has no key yet. */
struct gift *gifts_find(struct gifts *g, struct slice digest_hex, uint8_t key[PSK_KEY_BYTES]);
const char *gift_hex(const struct gift *x);
/* Bit 7 of byte 0 is chunk 0. False when it was withdrawn. */
MUST_USE bool gift_bitmap(struct gift *x, struct buf *out);
/* True: chunk i is there, at *at of *fd. */
MUST_USE bool gift_look(struct gift *x, uint64_t i, int *fd, uint64_t *at, size_t *n);

#endif
