/* pipeline.h - encodes the blocks of a feed on many threads and returns them in their order.
 *
 * One thread reads (and unpacks), others encode; the caller of pipeline_next() writes. The output
 * does not depend on the number of threads. The text in progress is limited by PIPELINE_BYTES, or
 * to one block if that alone is more.
 *
 * owns     the feed is borrowed until pipeline_close(), which joins the threads
 * threads  pipeline_next() from one
 */
#ifndef AGENT_TRAIN_PIPELINE_H
#define AGENT_TRAIN_PIPELINE_H

#include "agent/train/encode.h"

enum { PIPELINE_BYTES = 64 << 20 };

struct pipeline;

struct pipeline *pipeline_open(struct feed *f, const struct encode_options *o, unsigned threads);
void pipeline_close(struct pipeline **pp); /* also before the end; NULL is fine */
/* The next block's tokens, borrowed until the next call; NULL after the last. *taken_bytes: of
 * the feed's files. The first error in the order of the text ends it. */
MUST_USE int pipeline_next(struct pipeline *p, const struct encoded **out, uint64_t *taken_bytes,
                           struct err *e);

#endif
