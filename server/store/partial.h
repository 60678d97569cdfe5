/* partial.h - what an unfinished ingest (ingest.h) leaves for the next one: a row in TABLE_PARTIAL
 * beside its stage, and in memory a table of those that nobody has open.
 *
 * A row says of what its bytes are the beginning or a part, which of them are durable, and under
 * which validator. It is a promise about bytes, not about the origin: whether what is missing
 * belongs to them is for its owner to find out. An upload's row says only whose the stage is; what
 * has come of it stands in the upload's own rows.
 *
 * owns     a struct partial is its holder's: partial_take() gives it, partial_give() takes it back,
 *          partial_free() frees the memory alone
 * threads  any. partial_drop() and partials_drop_lost() block; what is lost waits for them
 */
#ifndef SERVER_STORE_PARTIAL_H
#define SERVER_STORE_PARTIAL_H

#include <uthash.h>

#include "common/base/arena.h"
#include "common/base/list.h"
#include "server/store/extent.h"
#include "server/store/store.h"

enum partial_kind {
    PARTIAL_FETCH = 'f',  /* name: the object row's key */
    PARTIAL_SYNC = 's',   /* name: repo NUL path */
    PARTIAL_UPLOAD = 'u', /* name: the session's id; never in the table */
};

struct partial {
    UT_hash_handle hh;
    struct list node;
    struct arena arena;
    struct slice key; /* its kind, and its name behind it */
    uint64_t id;      /* the stage's */
    uint64_t saved_unix_s;
    uint64_t total_bytes;   /* of the whole; UINT64_MAX: not known */
    struct slice source;    /* from where, and how it was announced there: equal or another */
    struct slice validator; /* n == 0: none */
    bool digest_known;
    struct digest digest; /* announced, of the whole */
    bool summed;
    struct digest sum; /* of the first run in `have`, which begins at 0 */
    struct extents have;
};

struct partial *partial_new(enum partial_kind kind, struct slice name);
void partial_free(struct partial **pp);
struct slice partial_name(const struct partial *p);
/* Adds its row to b, or that the row of a stage goes. */
MUST_USE int partial_put(struct batch *b, const struct partial *p, struct err *e);
void partial_del(struct batch *b, uint64_t id);

/* --- those that nobody has open --- */
/* Out of the table: that of the name, or the first one that suits. NULL: none. */
struct partial *partial_take(struct store *s, enum partial_kind kind, struct slice name);
struct partial *partial_take_if(struct store *s, enum partial_kind kind,
                                bool (*suits)(void *arg, const struct partial *p), void *arg);
/* For whoever wants it next. Two of one name: the fuller one stays, the other is lost. */
void partial_give(struct store *s, struct partial **pp);
/* Nobody will go on with that stage, or with those that go(): partials_drop_lost() removes them. */
void partial_lose(struct store *s, uint64_t id);
void partials_lose(struct store *s, enum partial_kind kind,
                   bool (*goes)(void *arg, const struct partial *p), void *arg);
/* Likewise all that have waited for a week, and the oldest fills while they hold more than
 * max_bytes. */
void partials_lose_old(struct store *s, uint64_t now_unix_s, uint64_t max_bytes);
void partials_drop_lost(struct store *s);
/* Row and file, unless somebody has the stage open. */
void partial_drop(struct store *s, struct partial **pp);
/* The first run of what it has, to be read: a handle without a digest. It stays parked. */
struct blob;
MUST_USE int partial_peek(struct store *s, const struct partial *p, struct blob **out,
                          struct err *e);
void partials_each(struct store *s, enum partial_kind kind,
                   void (*each)(void *arg, const struct partial *p), void *arg);

/* With the store: the rows are read; those that do not decode are lost. */
struct partials;
MUST_USE int partials_open(struct store *s, struct partials **out, struct err *e);
void partials_close(struct partials **xp);

#endif
