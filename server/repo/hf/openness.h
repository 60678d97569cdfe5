/* openness.h - the last word of a Hub on whether everybody may have a repository, one row each
 * (TABLE_LAST_WORD).
 *
 * What everybody is told comes from the Hub in many documents, one for each revision and each
 * spelling of the name, and each is kept for a time of its own. The note is the one word that
 * counts for all of them: a document opens nothing that the Hub has closed since it was made. It
 * stays when the documents go, and judges by digest, too.
 *
 * A row's key has the repository's name in small letters, as the Hub reads names. A former name has
 * a row that names the new one.
 *
 * threads  any; what is made lives in the arena that is given
 */
#ifndef SERVER_REPO_HF_OPENNESS_H
#define SERVER_REPO_HF_OPENNESS_H

#include "common/base/arena.h"
#include "server/store/store.h"

enum openness { /* from the least closed on */
                HUB_OPEN,
                HUB_GATED,  /* listings and the card are everybody's, other files are not */
                HUB_HIDDEN, /* private, or gone */
};

struct openness_note {
    bool here;
    struct slice row; /* its bytes; p == NULL: there is none */
    enum openness openness;
    uint64_t said_unix_s;
    /* the name was another repository's before; 0: it was not, as far as is known */
    uint64_t since_unix_s;
    struct slice id;     /* the Hub's name for it: another than the row's is its present one */
    struct slice number; /* "_id": names the repository itself; "" where the Hub does not tell */
};

struct slice openness_key(const char *repo, struct slice type, struct slice id, struct arena *a);
/* row.p == NULL, or not understood: *out is not here. */
void openness_read(struct slice row, struct openness_note *out);
struct slice openness_write(const struct openness_note *n, struct arena *a);
/* Is it the repository that the Hub calls so? */
bool openness_is_of(const struct openness_note *n, struct slice id, struct slice number);

/* Was the Hub's last word on it that it is private, or gone? Blocks. */
bool openness_hides(struct store *s, const char *repo, struct slice type, struct slice id);
/* May everybody have what was given to everybody under this key of the cache's? Blocks. */
bool openness_holds(struct store *s, const char *repo, struct slice key);

#endif
