/* source.h - a file's text as a stream of bytes, whatever it is packed in: plain, .gz (RFC 1952),
 * .zst (RFC 8878).
 *
 * The name's end says which. Several members or frames may follow one another. Memory is bounded by
 * the format's window; zstd's may be 128 MiB, as its own tool has it.
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
/* Up to `room` bytes; *n is 0 at the end alone. */
MUST_USE int source_read(struct source *s, void *p, size_t room, size_t *n, struct err *e);
/* Bytes of the file itself that have been read. */
uint64_t source_taken(const struct source *s);
/* The name without the packing's end: what the text is called. */
struct slice source_name(const char *path);

#endif
