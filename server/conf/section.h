/* section.h - one section of the file becomes one struct: its settings (value.h), then what several of them come to together.
 *
 * threads  any; reads the files that settings name
 * errors   E_CONFIG: "file:line: what, why, what to do"
 */
#ifndef SERVER_CONF_SECTION_H
#define SERVER_CONF_SECTION_H

#include "server/conf/conf.h"
#include "server/conf/schema.h"

/* One of those that stand once; where it does not stand, an empty one is put, so that `-T` shows its defaults. Children stand in
 * the order of settings.def. */
MUST_USE int section_single(struct settings_node *parent, enum section sec, void *base,
                            struct arena *a, struct err *e);

/* listen.c */
MUST_USE int section_listen(const struct settings_node *nd, struct listener_settings *l,
                            struct arena *a, struct err *e);
MUST_USE int section_rsync(const struct settings_node *nd, struct rsync_conf *d, struct arena *a,
                           struct err *e);
/* repo.c */
MUST_USE int section_repo(struct settings_node *nd, struct repo_conf *r, struct arena *a,
                          struct err *e);

/* print.c: all below the root, as it was written; defaults where nothing was. */
void section_print(const struct settings_node *root, struct buf *out);

#endif
