/* hub.h - Hub repositories through the mirror, `hf/[datasets/|spaces/]<owner>/<name>[@<rev>]`,
 * placed as the Hub's own client stores them.
 *
 * The revision is resolved once; its files are listed at that commit and pulled like any others.
 * LFS files are verified by their SHA-256 in parts, the others are compared with their Git object
 * id when complete. A folder that hub_place() made is a HF_HOME:
 * hub/models--<owner>--<name>/{blobs,snapshots,refs}. With HF_HUB_OFFLINE=1 a job sends no
 * requests.
 *
 * threads  one; hub_place() blocks
 */
#ifndef AGENT_PULL_HUB_H
#define AGENT_PULL_HUB_H

#include <limits.h>

#include "agent/agent.h"
#include "agent/pull/file.h"

#define HUB_REPO "hf" /* of the mirror, as a FROM begins */

struct hub {
    struct slice repo;   /* of the mirror: HUB_REPO */
    struct slice type;   /* "models", "datasets", "spaces"; static */
    struct slice prefix; /* of file URLs: "", "datasets/"; static */
    struct slice id;
    struct slice rev;
    struct slice commit; /* after the first document */
};

/* True: `from` names a repository, not a file of one. */
bool hub_from(struct slice from, struct arena *a, struct hub *out);
/* The next document to request, below the mirror: first the revision, then its files. */
struct slice hub_next_url(const struct hub *h, struct arena *a);
/* Parses the first: sets commit. */
MUST_USE int hub_read_info(struct hub *h, struct slice doc, struct arena *a, struct err *e);
/* Parses the second; calls each() for every file, whose name is NUL-terminated; a nonzero result
 * ends it. */
MUST_USE int hub_read_files(struct slice doc, int (*each)(void *arg, const struct artifact_file *f),
                            void *arg, struct err *e);
/* The URL below which the files are, ends in '/'. */
struct slice hub_files_url(const struct hub *h, struct slice mirror, struct arena *a);
/* Checks received files against the listing; the cache has all files. E_CORRUPT. */
MUST_USE int hub_check(const struct agent *ag, const struct artifact_file *f, size_t n,
                       struct err *e);
/* Below home; the cache has all files. */
MUST_USE int hub_place(const struct agent *ag, const struct hub *h, const struct artifact_file *f,
                       size_t n, const char *home, struct err *e);
/* The whole result of hub_place(): home/hub/models--owner--name. */
void hub_folder(const struct hub *h, const char *home, char out[PATH_MAX]);
/* The snapshot's folder below home. */
void hub_snapshot(const struct hub *h, const char *home, char out[PATH_MAX]);

#endif
