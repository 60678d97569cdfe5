/* source.h - reads a file's text as a stream of bytes, plain or packed: .gz (RFC 1952), .zst (RFC
 * 8878).
 *
 * The end of the name says which. Several members or frames may follow one another. Memory is
 * limited by the format's window; zstd's may be 128 MiB, as its own tool allows.
 *
 * threads  one at a time
 * errors   E_CORRUPT for packed bytes that are damaged or end early
 */
#ifndef AGENT_TRAIN_SOURCE_H
#define AGENT_TRAIN_SOURCE_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct source;

MUST_USE int source_open(const char *path, struct source **out, struct err *e);
void source_close(struct source **sp); /* NULL is fine */
/* Up to `room` bytes; *n is 0 only at the end. */
MUST_USE int source_read(struct source *s, void *p, size_t room, size_t *n, struct err *e);
/* Bytes of the file itself that have been read. */
uint64_t source_taken(const struct source *s);
/* The name without the packing's ending: the name of the text. */
struct slice source_name(const char *path);

#endif
