/* distribution.h - parses the file names of Python packages: the project, the version, and where a
 * wheel runs.
 *
 * owns     slices are of the name, or in the arena
 * threads  any; pure
 * source   PEP 427, 425, 600, 625
 */
#ifndef SERVER_REPO_PYTHON_DISTRIBUTION_H
#define SERVER_REPO_PYTHON_DISTRIBUTION_H

#include "server/repo/python/marker.h"
#include "server/repo/python/version.h"

struct distribution {
    bool wheel; /* false: a source archive */
    struct slice version_text;
    struct pyversion version;
    struct slice python, abi, platform; /* of wheels: tags, several joined by '.' */
};

/* project: normalized; its page names the file. False: neither a wheel nor a source archive of
 * it. */
MUST_USE bool distribution_parse(struct slice file, struct slice project, struct arena *a,
                                 struct distribution *out);
/* Does this wheel run in that environment? */
bool distribution_fits(const struct distribution *d, const struct pyenv *env);

#endif
