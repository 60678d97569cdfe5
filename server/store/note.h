/* note.h - a publisher's note on a version: author, title and message.
 *
 * It is a row beside the snapshot's, so that finding a version stays cheap: only a listing of the
 * history reads notes.
 *
 * owns     note_get() copies into the caller's arena
 * threads  any; blocks
 * errors   E_NOTFOUND: the version has no note
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
/* Adds the note to b, or nothing when it is empty. It must fit (note_fits()). */
void note_put(struct batch *b, struct slice repo, struct slice tree, uint64_t seq,
              const struct note *n);
MUST_USE int note_get(struct store *s, struct slice repo, struct slice tree, uint64_t seq,
                      struct arena *a, struct note *out, struct err *e);

#endif
