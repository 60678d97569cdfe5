/* hosted.h - what names and paths hosted trees take. */
#ifndef SERVER_REPO_HOSTED_HOSTED_H
#define SERVER_REPO_HOSTED_HOSTED_H

#include "common/base/slice.h"

bool hosted_segment_valid(struct slice s); /* an owner, a tree's name */
bool hosted_version_valid(struct slice v); /* "v7", a branch, a tag, a label, a root */
/* "datasets/" and "spaces/" begin the names of trees of these kinds: "datasets/<owner>/<name>"; of models nothing does. Takes it
 * off; "" when there is none. */
struct slice hosted_cut_kind(struct slice *path);
/* A file may be written there: a path of a tree, and none that is read as something else. */
bool hosted_path_valid(struct slice path);
/* Never text/html: what people upload must not run as ours in a browser. */
struct slice hosted_type_of(struct slice path);

#endif
