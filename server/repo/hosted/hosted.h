/* hosted.h - valid names and paths of hosted trees, and the kinds of their listings.
 *
 * owns     nothing
 * threads  any; pure
 */
#ifndef SERVER_REPO_HOSTED_HOSTED_H
#define SERVER_REPO_HOSTED_HOSTED_H

#include "common/base/slice.h"

enum hosted_list { /* plan.form */
                   LIST_HOSTED_FOLDER,
                   LIST_HUB_INFO,
                   LIST_HUB_TREE,
                   LIST_HUB_PATHS, /* of the paths in plan.text, which is a form */
                   LIST_HUB_TREES, /* the repositories of a kind */
                   LIST_HUB_MODES, /* of the files in plan.text, the body of a preupload */
                   LIST_HUB_REFS,
                   LIST_HUB_COMMITS,
                   /* of an LFS batch, plan.text: the addresses of what the tree has */
                   LIST_HUB_OBJECTS,
                   LIST_HUB_TENSORS, /* headers of the files that the index at plan.text names */
                   LIST_IMAGE_TAGS,
                   LIST_IMAGE_REFERRERS,
                   /* pages of a package index, in the format that plan.text names */
                   LIST_PYTHON_PROJECTS,
                   LIST_PYTHON_PROJECT
};

bool hosted_segment_valid(struct slice s); /* True for a valid owner, or name of a tree. */
bool hosted_version_valid(struct slice v); /* "v7", a branch, a tag, a label, a root */
/* "datasets/" and "spaces/" begin the names of trees of these kinds: "datasets/<owner>/<name>";
 * names of models have no prefix. Removes and returns it; "" when there is none. */
struct slice hosted_cut_kind(struct slice *path);
/* May a file be written there? The path must be valid in a tree and must have no other meaning. */
bool hosted_path_valid(struct slice path);
/* Never text/html: uploads must not run with our web origin in a browser. */
struct slice hosted_type_of(struct slice path);

#endif
