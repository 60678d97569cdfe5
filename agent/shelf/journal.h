/* journal.h - uses of a shelf's files, a line each: what gc goes by, and which digest a URL had.
 *
 *   <unix_s> <hex> <size> <etag or -> <url or ->
 *
 * Any number of processes add to it; gc writes it anew when it is large. All of it is hints: a line that is torn or lost costs a
 * download. shelf_note() and shelf_recall() (shelf.h) are its users' side.
 *
 * owns     a journal, until journal_close(); a use's slices are the text's
 * threads  one at a time
 */
#ifndef AGENT_SHELF_JOURNAL_H
#define AGENT_SHELF_JOURNAL_H

#include "common/base/buf.h"
#include "common/hash/digest.h"

enum { JOURNAL_MAX = 64 << 20 };

struct journal;
struct journal_use {
    uint64_t at_unix_s;
    struct digest digest;
    uint64_t size_bytes;
    struct slice etag;
    struct slice url;
};

struct journal *journal_open(const char *dir);
void journal_close(struct journal **jp);
const char *journal_path(const struct journal *j);
MUST_USE int journal_read(const struct journal *j, struct buf *out);
MUST_USE bool journal_line(struct slice *rest, struct journal_use *out); /* false at the end */

#endif
