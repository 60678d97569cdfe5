/* private.h - what shelf.c, stage.c and gc.c share. */
#ifndef AGENT_SHELF_PRIVATE_H
#define AGENT_SHELF_PRIVATE_H

#include "agent/shelf/shelf.h"

enum { SHELF_DIR_MAX = PATH_MAX - 256, JOURNAL_MAX = 64 << 20 };

struct shelf {
    char *dir;
    int journal;           /* -1: not opened yet */
    _Atomic bool no_clone; /* this file system, or the one where files are placed, has none */
};

struct journal_use {
    uint64_t at_unix_s;
    struct digest digest;
    uint64_t size_bytes;
    struct slice etag;
    struct slice url;
};

/* The mtime of a sealed blob. */
MUST_USE int shelf_mark(int fd, struct err *e);

MUST_USE int journal_read(struct shelf *s, struct buf *out);
MUST_USE bool journal_line(struct slice *rest, struct journal_use *out); /* false at the end */

#endif
