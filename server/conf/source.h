/* source.h - configuration files read into a tree of sections and texts, each with the place where it stands.
 *
 * libconfuse does the syntax; include("conf.d/x.conf") is ours: a glob, relative to the including file, in sorted order,
 * read after it. Here texts get no meaning yet: server/conf/value.c gives them one.
 *
 * owns     everything lives in the caller's arena
 * threads  one at a time in the whole process (libconfuse's lexer is global): a lock inside sees to it
 */
#ifndef SERVER_CONF_SOURCE_H
#define SERVER_CONF_SOURCE_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "server/conf/schema.h"

struct place {
    const char *file;
    unsigned line;
};

struct given {
    const char *text;
    struct place at;
    struct given *next; /* of a list */
};

struct node { /* one section as written */
    enum section section;
    const char *title; /* "" without */
    struct place at;
    struct given **given; /* by setting, as section_settings() orders them; NULL: not written */
    bool *written;        /* also true for an empty list */
    struct node *child, *next;
};

MUST_USE int source_read(const char *path, struct arena *a, struct node **out, struct err *e);
/* One in which nothing is written. */
struct node *node_empty(struct arena *a, enum section sec, struct place at);

#endif
