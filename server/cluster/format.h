/* format.h - the format of what the mirrors of a cluster write, so that mirrors of two versions can
 * share a bucket while they are upgraded one after the other.
 *
 * One number stands for everything that mirrors read of each other: rows of shared tables, entries
 * of the log, objects in the bucket, and requests from mirror to mirror. A version reads all
 * formats up to format_newest(). What it writes has the format of the cluster, which is a shared
 * row:
 *
 *   TABLE_FORMAT   "" -> the number in decimal; without the row, it is FORMAT_FIRST
 *
 * Each mirror announces the newest format that it reads (member.h). An entry of the log raises the
 * row once all mirrors can read the newer format, so nothing of that format comes before this
 * entry. The list of mirrors may lag: a mirror of an older version that meets the entry, or a
 * checkpoint that has the row, stops there. It never skips it.
 *
 * To change what is written or sent: raise CLUSTER_FORMAT in format.c, read both forms, and write
 * the new one only if format_read() says so. A new kind of request needs no format if the sender
 * does without the response of a mirror that does not know it.
 *
 * threads  any; format_newest() and format_check() are pure, the others block
 * errors   E_UNSUPPORTED: a format that this version does not read; E_CORRUPT
 */
#ifndef SERVER_CLUSTER_FORMAT_H
#define SERVER_CLUSTER_FORMAT_H

#include "server/store/store.h"

enum { FORMAT_FIRST = 1 };

uint64_t format_newest(void);
/* Judges the value of the row. */
MUST_USE int format_check(struct slice value, struct err *e);
/* E_UNSUPPORTED: an object begins with the magic `is`, and this version reads `known`. */
int format_refuse(const char *what, struct slice is, struct slice known, struct err *e);

/* The format of the cluster that the store belongs to, or belonged to. */
MUST_USE int format_read(struct store *s, uint64_t *out, struct err *e);
/* E_CHANGED: it is not `from` any more. */
MUST_USE int format_raise(struct store *s, uint64_t from, uint64_t to, struct err *e);

#endif
