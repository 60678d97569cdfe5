/* value.h - the texts of one section become the fields of its struct, judged one by one.
 *
 * Each text is checked for form and range here; what several of them come to is conf.c's and
 * repo.c's business. Paths are made absolute, or relative to the working folder when the
 * configuration's own path is; secrets are read.
 *
 * threads  any
 */
#ifndef SERVER_CONF_VALUE_H
#define SERVER_CONF_VALUE_H

#include "server/conf/schema.h"

/* Fills every field of `base` that the section's settings name: from the file, else by default. */
MUST_USE int values_fill(const struct settings_node *nd, void *base, struct arena *a,
                         struct err *e);
/* Likewise, of a section that stands once; where it does not stand, an empty one is put, so that
 * `-T` shows its defaults. Children stand in the order of settings.def. */
MUST_USE int values_single(struct settings_node *parent, enum section sec, void *base,
                           struct arena *a, struct err *e);

#endif
