/* variant.h - one of several answers under a key, and the fields of the request that it was chosen
 * by (RFC 9111 4.1).
 *
 * A want has the fields of its client that an answer may vary by. What the origin's Vary nominates
 * of them follows the key of the answer's row, as a tail: "~accept:application/json\nx-kind\n", by
 * name, a name alone where the request had none. Without any the tail is "", and the row is
 * everybody's. What is ignored is the same for all (docs/decisions/0021).
 *
 * threads  pure functions; what they make is in the arena or buf that is given
 */
#ifndef SERVER_CACHE_VARIANT_H
#define SERVER_CACHE_VARIANT_H

#include "server/cache/object.h"

enum {
    VARIANTS_MAX = 16, /* of one object in the store: the least used goes */
    VARIANT_FIELDS = 8,
    VARIANT_VALUES = 2048, /* bytes of values, together */
    VARIANT_NAMES =
        16, /* of one Vary, and of one request; an answer that varies by more is not kept */
    VARIANT_VALUE = 64, /* a longer one is held by its digest, unless its repo forwards it */
    VARY_KEY_MAX = (VARIANT_FIELDS + VARIANT_NAMES) * (66 + VARIANT_VALUE) + VARIANT_VALUES + 8,
};

/* Fields that Vary may name without effect, unless the repo forwards them: they say who asks, or
 * are this server's own. */
bool variant_ignores(struct slice name);
/* Does Vary name a field that is neither among these nor ignored? */
bool variant_names_another(const struct http_field *fields, size_t nfields, char *const *known,
                           size_t nknown);
/* w's fields, where those that the tail names are sent from now on. */
const struct lookup_field *variant_send(const struct lookup *w, struct slice vary_key,
                                        struct arena *a);
/* w's fields as the origin gets them: those that wait to be named are as if the client had none. */
const struct lookup_field *variant_sent(const struct lookup *w, struct arena *a);
/* By the Vary of an answer to w. */
struct slice variant_of_answer(const struct lookup *w, const struct http_field *fields,
                               size_t nfields, struct arena *a);
/* By all that w sends, beside its Vary: an answer that is for nobody but those who asked the
 * same. */
struct slice variant_of_all(const struct lookup *w, const struct http_field *fields, size_t nfields,
                            struct arena *a);
/* By the fields that another tail names. */
struct slice variant_like(const struct lookup *w, struct slice vary_key, struct arena *a);
/* Was what has this tail chosen by the values that w has? "" suits everybody. */
bool vary_matches(struct slice vary_key, const struct lookup *w);
/* Do they name the same fields? */
bool variant_alike(struct slice vary_key, struct slice other);
/* May o, kept under this tail, be given to w? What was kept before the repo forwarded a field that
 * its Vary names is for those without that field. */
bool variant_answers(const struct object *o, struct slice vary_key, const struct lookup *w);

/* The row's key; and back, from what stands behind the repo in it (object_key_of_row): "" without
 * one. */
void variant_key(struct buf *out, struct slice row_key, struct slice vary_key);
struct slice variant_of_row(struct slice key_of_row);

#endif
