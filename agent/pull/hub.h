/* hub.h - repositories of a Hub behind the mirror: `hf/[datasets/|spaces/]<owner>/<name>[@<rev>]`,
 * as the Hub's own client keeps them on disk.
 *
 * The revision is asked for once, its files are listed at that commit and pulled like any others:
 * LFS files by their SHA-256 in verified parts, the others are held against git's name for them
 * when they have come. A folder that hub_place() made is a HF_HOME:
 * hub/models--<owner>--<name>/{blobs,snapshots,refs}; with HF_HUB_OFFLINE=1 a job asks nobody.
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
    struct slice commit; /* once the first document has come */
};

/* True: `from` names a repository, not a file of one. */
bool hub_from(struct slice from, struct arena *a, struct hub *out);
/* The document to be asked for next, below the mirror: first what the revision is, then its
 * files. */
struct slice hub_next_url(const struct hub *h, struct arena *a);
/* Reads the first: sets commit. */
MUST_USE int hub_read_info(struct hub *h, struct slice doc, struct arena *a, struct err *e);
/* Reads the second; each() for every file, whose name ends with a NUL; nonzero ends it. */
MUST_USE int hub_read_files(struct slice doc, int (*each)(void *arg, const struct artifact_file *f),
                            void *arg, struct err *e);
/* Where the files are, ends in '/'. */
struct slice hub_files_url(const struct hub *h, struct slice mirror, struct arena *a);
/* What came is what the listing called it; the cache has all files. E_CORRUPT. */
MUST_USE int hub_check(const struct agent *ag, const struct artifact_file *f, size_t n,
                       struct err *e);
/* Below home; the cache has all files. */
MUST_USE int hub_place(const struct agent *ag, const struct hub *h, const struct artifact_file *f,
                       size_t n, const char *home, struct err *e);
/* All that hub_place() makes: home/hub/models--owner--name. */
void hub_folder(const struct hub *h, const char *home, char out[PATH_MAX]);
/* The snapshot's folder below home. */
void hub_snapshot(const struct hub *h, const char *home, char out[PATH_MAX]);

#endif
