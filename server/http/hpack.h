/* hpack.h - compresses the heads of answers for one HTTP/2 connection (RFC 7541): the sender's
 * half. nghttp2's inflater reads the heads that peers send.
 *
 * The answers of one server are alike: a repeated field takes one byte. A value enters the table
 * when it is seen for the second time, so that values that differ from file to file do not displace
 * those that repeat. A name that is in no table enters it with its first value. Strings are not
 * Huffman-coded: they are few, and the coding took a tenth of a small answer's time.
 *
 * owns     the entries; hpack_fini() frees them
 * threads  one
 * source   RFC 7541
 */
#ifndef SERVER_HTTP_HPACK_H
#define SERVER_HTTP_HPACK_H

#include "common/base/slice.h"

enum {
    HPACK_TABLE_BYTES = 4096, /* the initial size at both ends */
    HPACK_RING = HPACK_TABLE_BYTES / 32,
    HPACK_FIELD_SLOTS = 64,
    HPACK_NAME_SLOTS = 32,
    HPACK_SEEN_SLOTS = 32,
    HPACK_UPDATE_BYTES = 8, /* what hpack_begin() may write */
    HPACK_INT_BYTES = 6,
};

struct hpack_entry;
struct hpack {
    struct hpack_entry *ring[HPACK_RING]; /* by number */
    uint32_t last;                        /* number of the newest entry */
    uint32_t spelt;                       /* strings that were written literally; only grows */
    uint32_t count;
    uint32_t used_bytes, max_bytes;
    uint32_t least_bytes; /* the smallest bound since the last update that the peer got */
    bool tell;            /* the bound has changed, and the peer must get an update */
    uint32_t by_field[HPACK_FIELD_SLOTS], by_name[HPACK_NAME_SLOTS]; /* the newest entry there */
    uint16_t seen[HPACK_SEEN_SLOTS];
};

void hpack_init(struct hpack *h);
void hpack_fini(struct hpack *h);
void hpack_limit(struct hpack *h, uint32_t bytes); /* the peer's SETTINGS_HEADER_TABLE_SIZE */

/* Each call writes at `to` and returns the position after it. A head begins with hpack_begin() and
 * hpack_status(). */
char *hpack_begin(struct hpack *h, char *to);
char *hpack_status(char *to, int status);
/* once: the value will not repeat (an id, a secret), so it never enters the table. */
char *hpack_field(struct hpack *h, char *to, struct slice name, struct slice value, bool once);

static inline size_t hpack_bound(struct slice name, struct slice value)
{
    return 3 * HPACK_INT_BYTES + name.n + value.n;
}

#endif
