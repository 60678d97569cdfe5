/* bundle_out.h - writes a bundle: into a folder, or as a tar.
 *
 * A folder can be continued: complete files in it are not copied again. Equal files share their
 * bytes (reflinks of the store where the file system supports them, else copies inside the
 * kernel; hard links within the bundle). The manifest is written last, when all files that it
 * names are on the disk. A tar begins with its manifest; a FILE.tar appears whole or not at all.
 *
 * owns     bundle_out_close() frees, and removes an unfinished FILE.tar
 * threads  one at a time; blocks
 */
#ifndef SERVER_CTL_BUNDLE_OUT_H
#define SERVER_CTL_BUNDLE_OUT_H

#include "server/ctl/bundle.h"

struct bundle_out;
struct bundle_out_ops {
    /* manifest, sums: in their final form. */
    int (*begin)(struct bundle_out *o, struct slice manifest, struct slice sums, struct err *e);
    bool (*has)(struct bundle_out *o, const struct bundle_item *it);
    /* An item with the same bytes as one that was written before. */
    int (*again)(struct bundle_out *o, const struct bundle_item *it, const struct bundle_item *as,
                 struct err *e);
    /* fd: a file of it->size_bytes, read from its start. */
    int (*file)(struct bundle_out *o, const struct bundle_item *it, int fd, struct err *e);
    int (*finish)(struct bundle_out *o, struct slice manifest, struct slice sums, struct err *e);
    void (*close)(struct bundle_out *o);
};

struct bundle_out { /* what both kinds share, at the start of each */
    const struct bundle_out_ops *ops;
    bool deep;                               /* read again what was written, or was there */
    void (*on_bytes)(void *arg, uint64_t n); /* written or skipped */
    void *arg;
};

/* to: a folder, created if missing; "FILE.tar"; "-": a tar on standard output. force: replace
 * FILE.tar. */
MUST_USE int bundle_out_open(const char *to, bool force, struct bundle_out **out, struct err *e);
bool bundle_is_tar(const char *path); /* by its name; "-" is one */
void bundle_out_close(struct bundle_out **op);

#endif
