/* file_filter.h - decides which entries of a list a repository mirrors: rules in rsync's syntax,
 * a largest size, links that stay inside.
 *
 * The pipeline asks about every entry, whatever the engine. An engine may ask earlier, where that
 * saves a folder's page, or pass the rules to an upstream that applies them. Published entries
 * are filtered like listed ones, so a new rule also takes effect on what is already published.
 *
 * Listers that write documents which name files (list = hf, pypi) apply the filter to the names
 * in those documents (file_filter_wants_below()), and the pipeline takes what they list.
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

/* *out is NULL when every entry passes; all calls below accept NULL. */
MUST_USE int file_filter_new(const struct sync_conf *c, struct file_filter **out, struct err *e);
void file_filter_free(struct file_filter **sp);

MUST_USE bool file_filter_wants(struct file_filter *s, const struct sync_entry *en);
MUST_USE bool file_filter_wants_old(struct file_filter *s, const struct entry *en);
/* For such listers: a file's path below the repository, or the index. */
MUST_USE bool file_filter_wants_below(struct file_filter *s, struct slice path,
                                      uint64_t size_bytes);
/* Applies only the rules, to a path and the folders above it. */
MUST_USE bool file_filter_wants_path(struct file_filter *s, struct slice path, bool is_folder);
/* In rsync's notation. */
const char *const *file_filter_rules(const struct file_filter *s, size_t *count);

/* A hash of all settings that decide what a list has: a different number means a different list
 * of the same upstream. */
uint64_t file_filter_print(const struct sync_conf *c);
/* True when a link's target does not lead above the top, by the rules of rsync's --safe-links. */
MUST_USE bool file_filter_link_stays(struct slice path, struct slice target);

#endif
