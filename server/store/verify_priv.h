/* verify_priv.h - a verify from within, for verify.c (rows, and the order of the passes) and verify_files.c (folders) alone. */
#ifndef SERVER_STORE_VERIFY_PRIV_H
#define SERVER_STORE_VERIFY_PRIV_H

#include "server/store/keep.h"
#include "server/store/state.h"

struct verify {
    struct store *s;
    bool deep;
    bool repair;
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void (*finding)(void *arg, const char *what);
    void *arg;
    struct verify_report *out;
    struct counts sum;
    uint64_t total;
    enum table table; /* of a pass over side rows */
    struct buf key;
    struct buf row;
    struct err *e;
};

/* Counts it, and says it to whoever listens. */
void verify_found(struct verify *v, uint64_t *kind, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A row of that key, and be it one that cannot be read. */
bool verify_has_row(struct verify *v, enum table t, struct slice key);

/* Passes: orphans are removed and counted, what is in the wrong place is said. */
MUST_USE int verify_files(struct verify *v);    /* blobs/ */
MUST_USE int verify_partials(struct verify *v); /* partial/ */

#endif
