/* bundle_out.h - a bundle being written: into a folder, or as a tar.
 *
 * A folder is gone on with: files that are there and whole are not copied again, those of the same
 * bytes share them (reflinks of the store where the file system has them, else copies inside the
 * kernel; hard links within the bundle). Its manifest comes last, when all it names is on the disk.
 * A tar begins with its manifest; a FILE.tar appears whole or not at all.
 *
 * owns     bundle_out_close() frees, and takes a FILE.tar away that was not finished
 * threads  one at a time; blocks
 */
#ifndef SERVER_CTL_BUNDLE_OUT_H
#define SERVER_CTL_BUNDLE_OUT_H

#include "server/ctl/bundle.h"

struct bundle_out;
struct bundle_out_ops {
    /* manifest, sums: as they will be. */
    int (*begin)(struct bundle_out *o, struct slice manifest, struct slice sums, struct err *e);
    bool (*has)(struct bundle_out *o, const struct bundle_item *it);
    /* The same bytes as an item that was written before. */
    int (*again)(struct bundle_out *o, const struct bundle_item *it, const struct bundle_item *as,
                 struct err *e);
    /* fd: a file of it->size_bytes, read from its start. */
    int (*file)(struct bundle_out *o, const struct bundle_item *it, int fd, struct err *e);
    int (*finish)(struct bundle_out *o, struct slice manifest, struct slice sums, struct err *e);
    void (*close)(struct bundle_out *o);
};

struct bundle_out { /* what both have; each goes on behind it */
    const struct bundle_out_ops *ops;
    bool deep;                               /* read again what was written, or is there */
    void (*on_bytes)(void *arg, uint64_t n); /* written or passed over */
    void *arg;
};

/* to: a folder, made when it is not there; "FILE.tar"; "-": a tar on standard output. force:
 * replace FILE.tar. */
MUST_USE int bundle_out_open(const char *to, bool force, struct bundle_out **out, struct err *e);
bool bundle_is_tar(const char *path); /* by its name; "-" is one */
void bundle_out_close(struct bundle_out **op);

#endif
