/* hosted.h - what names and paths hosted trees take. */
#ifndef SERVER_REPO_HOSTED_HOSTED_H
#define SERVER_REPO_HOSTED_HOSTED_H

#include "common/base/slice.h"

enum hosted_list { /* plan.form */
                   LIST_HOSTED_FOLDER,
                   LIST_HUB_INFO,
                   LIST_HUB_TREE,
                   LIST_HUB_PATHS, /* of the paths in plan.text, a form */
                   LIST_HUB_TREES, /* the repositories of a kind */
                   LIST_HUB_MODES, /* of the files in plan.text, a preupload's body */
                   LIST_HUB_REFS,
                   LIST_HUB_COMMITS,
                   LIST_HUB_OBJECTS, /* of an LFS batch, plan.text: where what the tree has is read */
                   LIST_HUB_TENSORS, /* headers of the files that the index at the path plan.text names */
                   LIST_IMAGE_TAGS,
                   LIST_IMAGE_REFERRERS,
                   LIST_PYTHON_PROJECTS, /* pages of a package index in the form that plan.text names */
                   LIST_PYTHON_PROJECT
};

bool hosted_segment_valid(struct slice s); /* an owner, a tree's name */
bool hosted_version_valid(struct slice v); /* "v7", a branch, a tag, a label, a root */
/* "datasets/" and "spaces/" begin the names of trees of these kinds: "datasets/<owner>/<name>"; of
 * models nothing does. Takes it off; "" when there is none. */
struct slice hosted_cut_kind(struct slice *path);
/* A file may be written there: a path of a tree, and none that is read as something else. */
bool hosted_path_valid(struct slice path);
/* Never text/html: what people upload must not run as ours in a browser. */
struct slice hosted_type_of(struct slice path);

#endif
