/* file_filter.h - which entries of a list a repo wants: rules in rsync's syntax, a largest size,
 * links that stay inside.
 *
 * The pipeline asks for every entry, whatever the engine; an engine may ask earlier, where that
 * saves a folder's page, or hand the rules to an upstream that applies them itself. Entries that
 * are published fall under them like listed ones: so a rule takes effect on what is there.
 *
 * Where a lister writes documents that name files (list = hf, pypi) it applies them itself, to the
 * names that those documents have (file_filter_wants_below()), and the pipeline takes what it
 * lists.
 *
 * owns     file_filter_free(); rules are copied
 * threads  one at a time
 * errors   E_CONFIG
 */
#ifndef SERVER_SYNC_FILE_FILTER_H
#define SERVER_SYNC_FILE_FILTER_H

#include "common/base/err.h"
#include "server/repo/sync_conf.h"
#include "server/store/tree.h"
#include "server/sync/entry.h"

struct file_filter;

/* *out is NULL when everything is wanted; all calls below take that. */
MUST_USE int file_filter_new(const struct sync_conf *c, struct file_filter **out, struct err *e);
void file_filter_free(struct file_filter **sp);

MUST_USE bool file_filter_wants(struct file_filter *s, const struct sync_entry *en);
MUST_USE bool file_filter_wants_old(struct file_filter *s, const struct entry *en);
/* For such listers: a file's path below the repository, or the index. */
MUST_USE bool file_filter_wants_below(struct file_filter *s, struct slice path,
                                      uint64_t size_bytes);
/* The rules alone, for a path and the folders above it. */
MUST_USE bool file_filter_wants_path(struct file_filter *s, struct slice path, bool is_folder);
/* As rsync writes them. */
const char *const *file_filter_rules(const struct file_filter *s, size_t *count);

/* Of all that decides what a list has: another number, another list of the same upstream. */
uint64_t file_filter_print(const struct sync_conf *c);
/* A link's target does not lead above the top, and says so: as rsync's --safe-links judges. */
MUST_USE bool file_filter_link_stays(struct slice path, struct slice target);

#endif
