/* openness.h - a Hub's last answer on whether everybody may read a repository, one row each
 * (TABLE_LAST_WORD).
 *
 * What everybody sees comes from the Hub in many documents, one for each revision and each spelling
 * of the name, and each is fresh for its own time. The note counts for all of them: a document does
 * not open what the Hub has closed since it was made. The note stays when the documents are
 * evicted, and also decides requests by digest.
 *
 * A row's key has the repository's name in lower case, because the Hub ignores case. A former name
 * has a row that names the new one.
 *
 * owns     nothing: results live in the given arena
 * threads  any; the functions with a store block
 */
#ifndef SERVER_REPO_HF_OPENNESS_H
#define SERVER_REPO_HF_OPENNESS_H

#include "common/base/arena.h"
#include "server/store/store.h"

enum openness { /* ordered from the most open */
                HUB_OPEN,
                HUB_GATED,  /* listings and the card are for everybody, other files are not */
                HUB_HIDDEN, /* private, or gone */
};

struct openness_note {
    bool here;
    struct slice row; /* its bytes; p == NULL: there is no row */
    enum openness openness;
    uint64_t said_unix_s;
    /* Before this time another repository had the name; 0: never, as far as is known. */
    uint64_t since_unix_s;
    /* the Hub's name for it: if it differs from the row's, it is the present name */
    struct slice id;
    /* "_id", which identifies the repository itself; "" if the Hub does not give it */
    struct slice number;
};

struct slice openness_key(const char *repo, struct slice type, struct slice id, struct arena *a);
/* row.p == NULL, or a row that cannot be decoded: out->here is false. */
void openness_read(struct slice row, struct openness_note *out);
struct slice openness_write(const struct openness_note *n, struct arena *a);
/* Is it the repository that has this id and number at the Hub? */
bool openness_is_of(const struct openness_note *n, struct slice id, struct slice number);

/* Did the Hub's last answer say that it is private, or gone? Blocks. */
bool openness_hides(struct store *s, const char *repo, struct slice type, struct slice id);
/* May everybody still have what was given to everybody under this cache key? Blocks. */
bool openness_holds(struct store *s, const char *repo, struct slice key);

#endif
