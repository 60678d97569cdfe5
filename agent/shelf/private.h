/* private.h - what shelf.c, stage.c and gc.c share. */
#ifndef AGENT_SHELF_PRIVATE_H
#define AGENT_SHELF_PRIVATE_H

#include "agent/shelf/journal.h"
#include "agent/shelf/shelf.h"

enum { SHELF_DIR_MAX = PATH_MAX - 256 };

struct shelf {
    char *dir;
    struct journal *journal;
    _Atomic bool no_clone; /* this file system, or the one where files are placed, has none */
};

/* The mtime of a sealed blob. */
MUST_USE int shelf_mark(int fd, struct err *e);

#endif
