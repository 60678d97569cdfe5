/* partial.h - what an unfinished ingest (ingest.h) leaves for the next one: a row in TABLE_PARTIAL
 * beside its stage, and an entry in a table in memory while no ingest has it open.
 *
 * A row says which object its bytes belong to, which of them are durable, and under which
 * validator. It makes statements about bytes, not about the origin: its owner has to find out
 * whether the missing part still belongs to them. An upload's row only says whose the stage is; its
 * progress is in the upload's own rows.
 *
 * owns     a struct partial is its holder's: partial_take() gives it, partial_give() takes it back,
 *          partial_free() only frees the memory
 * threads  any. partial_drop() and partials_drop_lost() block; lost partials wait for them
 * errors   a row that cannot be decoded counts as lost
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
    struct slice key; /* its kind, followed by its name */
    uint64_t id;      /* the stage's */
    uint64_t saved_unix_s;
    uint64_t total_bytes; /* of the whole object; UINT64_MAX: unknown */
    /* its source and how the object was announced there; only compared for equality */
    struct slice source;
    struct slice validator; /* n == 0: none */
    bool digest_known;
    struct digest digest; /* announced, of the whole object */
    bool summed;
    struct digest sum; /* of the first run in `have`, which begins at 0 */
    struct extents have;
};

struct partial *partial_new(enum partial_kind kind, struct slice name);
void partial_free(struct partial **pp);
struct slice partial_name(const struct partial *p);
/* partial_put() adds its row to b; partial_del() removes the row of a stage. */
MUST_USE int partial_put(struct batch *b, const struct partial *p, struct err *e);
void partial_del(struct batch *b, uint64_t id);

/* --- parked ones: no ingest has them open --- */
/* Takes one out of the table: the one of that name, or the first that suits() accepts. NULL:
 * none. */
struct partial *partial_take(struct store *s, enum partial_kind kind, struct slice name);
struct partial *partial_take_if(struct store *s, enum partial_kind kind,
                                bool (*suits)(void *arg, const struct partial *p), void *arg);
/* Puts it back for the next ingest. Of two with one name, the one with more bytes stays and the
 * other is lost. */
void partial_give(struct store *s, struct partial **pp);
/* That stage, or those that goes() selects, will not be resumed; partials_drop_lost() removes
 * them. */
void partial_lose(struct store *s, uint64_t id);
void partials_lose(struct store *s, enum partial_kind kind,
                   bool (*goes)(void *arg, const struct partial *p), void *arg);
/* The same, for all that have waited for a week, and for the oldest fetches while they hold more
 * than max_bytes. */
void partials_lose_old(struct store *s, uint64_t now_unix_s, uint64_t max_bytes);
void partials_drop_lost(struct store *s);
/* Removes row and file, unless an ingest has the stage open. */
void partial_drop(struct store *s, struct partial **pp);
/* A handle without a digest that reads its first run. It stays parked. */
struct blob;
MUST_USE int partial_peek(struct store *s, const struct partial *p, struct blob **out,
                          struct err *e);
void partials_each(struct store *s, enum partial_kind kind,
                   void (*each)(void *arg, const struct partial *p), void *arg);

/* Opened with the store: the rows are read, and those that cannot be decoded are lost. */
struct partials;
MUST_USE int partials_open(struct store *s, struct partials **out, struct err *e);
void partials_close(struct partials **xp);

#endif
