/* variant.h - one of several answers under a key, and the request fields that selected it (RFC 9111
 * 4.1).
 *
 * A lookup has the fields of its client by which an answer may vary. The fields that the origin's
 * Vary names are appended to the key of the answer's row, as its vary key:
 * "~accept:application/json\nx-kind\n", sorted by name, a name alone where the request had no such
 * field. Without any the vary key is "", and the row is for everybody. Ignored fields do not
 * separate variants (docs/decisions/0021).
 *
 * owns     nothing: results are in the given arena or buf
 * threads  pure functions
 */
#ifndef SERVER_CACHE_VARIANT_H
#define SERVER_CACHE_VARIANT_H

#include "server/cache/object.h"

enum {
    VARIANTS_MAX = 16, /* of one object in the store; the least used is removed */
    VARIANT_FIELDS = 8,
    VARIANT_VALUES = 2048, /* bytes of values, together */
    VARIANT_NAMES = 16,    /* of one Vary, and of one request; a longer Vary is not stored */
    VARIANT_VALUE = 64, /* a longer value is compared by its digest, unless its repo forwards it */
    VARY_KEY_MAX = (VARIANT_FIELDS + VARIANT_NAMES) * (66 + VARIANT_VALUE) + VARIANT_VALUES + 8,
};

/* Fields that have no effect in Vary, unless the repo forwards them: they identify the client, or
 * are this server's own. */
bool variant_ignores(struct slice name);
/* Does Vary name a field that is neither one of `known` nor ignored? */
bool variant_names_another(const struct http_field *fields, size_t nfields, char *const *known,
                           size_t nknown);
/* w's fields, with those that the vary key names marked to be sent from now on. */
const struct lookup_field *variant_send(const struct lookup *w, struct slice vary_key,
                                        struct arena *a);
/* w's fields as the origin gets them. A field that is sent once named is left out until then. */
const struct lookup_field *variant_sent(const struct lookup *w, struct arena *a);
/* The vary key by the Vary of an answer to w. */
struct slice variant_of_answer(const struct lookup *w, const struct http_field *fields,
                               size_t nfields, struct arena *a);
/* The vary key by all fields that w sends, beside the answer's Vary: such an answer is only for
 * lookups with the same fields. */
struct slice variant_of_all(const struct lookup *w, const struct http_field *fields, size_t nfields,
                            struct arena *a);
/* The vary key by the fields that another vary key names. */
struct slice variant_like(const struct lookup *w, struct slice vary_key, struct arena *a);
/* Was the variant with this vary key selected by the values that w has? "" matches everybody. */
bool vary_matches(struct slice vary_key, const struct lookup *w);
/* Do they name the same fields? */
bool variant_alike(struct slice vary_key, struct slice other);
/* May o, stored under this vary key, answer w? An object that was stored before the repo forwarded
 * a field that its Vary names is for requests without that field. */
bool variant_answers(const struct object *o, struct slice vary_key, const struct lookup *w);

/* The row's key; and back, from the part of it after the repo (object_key_of_row()): "" without
 * one. */
void variant_key(struct buf *out, struct slice row_key, struct slice vary_key);
struct slice variant_of_row(struct slice key_of_row);

#endif
