/* note.h - what a publisher said of a version: who, and why. A row of its own beside the
 * snapshot's, so that finding a version stays cheap, and only who lists a history reads it.
 *
 * threads  any; blocks
 * errors   E_NOTFOUND: nothing was said
 */
#ifndef SERVER_STORE_NOTE_H
#define SERVER_STORE_NOTE_H

#include "common/base/arena.h"
#include "server/store/store.h"

enum { NOTE_AUTHOR_MAX = 255, NOTE_TITLE_MAX = 4096, NOTE_MESSAGE_MAX = 64 << 10 };

struct note {
    struct slice author; /* a token's name */
    struct slice title, message;
};

bool note_fits(const struct note *n);
/* Adds to b; nothing when nothing is said. It fits. */
void note_put(struct batch *b, struct slice repo, struct slice tree, uint64_t seq,
              const struct note *n);
MUST_USE int note_get(struct store *s, struct slice repo, struct slice tree, uint64_t seq,
                      struct arena *a, struct note *out, struct err *e);

#endif
