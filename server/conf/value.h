/* value.h - turns the texts of one section into the fields of its struct, checking each.
 *
 * Each text is checked here for form and range; conf.c and repo.c check combinations. Paths are
 * made absolute, or relative to the working folder when the configuration's own path is relative;
 * secrets are read.
 *
 * threads  any
 */
#ifndef SERVER_CONF_VALUE_H
#define SERVER_CONF_VALUE_H

#include "server/conf/schema.h"

/* Sets every field of `base` that the section's settings name, from the file or to its default. */
MUST_USE int values_fill(const struct settings_node *nd, void *base, struct arena *a,
                         struct err *e);
/* The same for a section that occurs once. If it is missing, an empty one is added, so that `-T`
 * shows its defaults. Children are in the order of settings.def. */
MUST_USE int values_single(struct settings_node *parent, enum section sec, void *base,
                           struct arena *a, struct err *e);

#endif
