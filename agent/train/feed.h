/* feed.h - reads files of text and returns blocks of about a MiB that can be encoded separately
 * and give the same tokens.
 *
 * A file called .jsonl or .ndjson (.gz, .zst) has a document on each line; any other file is a
 * document. A long document is cut where a word ends whatever is around it (tokenizer_cut); lines
 * are never cut. Memory is limited whatever the size of a document: by FEED_MAX_TEXT, where a
 * text without such a place is cut all the same, at a character, and by FEED_MAX_LINE, above
 * which a line is refused.
 *
 * owns     struct feed holds the list of files and the open one
 * threads  one at a time
 * errors   E_NOTFOUND when nothing matches; E_CORRUPT, E_TOOBIG, E_IO name the file
 */
#ifndef AGENT_TRAIN_FEED_H
#define AGENT_TRAIN_FEED_H

#include "agent/train/tokenizer.h"

enum {
    FEED_BLOCK = 1 << 20,
    FEED_MAX_TEXT = 16 << 20,
    FEED_MAX_LINE = 64 << 20,
};

struct block {
    struct buf text;
    bool lines;           /* a document per line; else part of one document: */
    bool first;           /* its beginning is here */
    bool last;            /* its end is here */
    const char *path;     /* borrowed from the feed */
    uint64_t line;        /* number of the first line */
    uint64_t taken_bytes; /* of all files, up to the end of this block */
};

struct feed;

/* Files, folders and patterns in their order; of a folder the files whose names match `include`,
 * by name, except those with a NUL at their beginning. The tokenizer is borrowed. */
MUST_USE int feed_open(char *const *path, size_t paths, const char *include,
                       const struct tokenizer *t, struct feed **out, struct err *e);
/* Sets the block size in place of FEED_BLOCK, before the first block: for tests, which need many
 * blocks of a short text. */
void feed_set_block(struct feed *f, size_t bytes);
void feed_close(struct feed **fp);         /* NULL is fine */
uint64_t feed_bytes(const struct feed *f); /* of all files, as stored */
/* Fills the block, whose buf the caller owns; *end when there was none left. */
MUST_USE int feed_next(struct feed *f, struct block *out, bool *end, struct err *e);
uint64_t feed_files(const struct feed *f);   /* opened so far and not skipped */
uint64_t feed_skipped(const struct feed *f); /* binary ones in folders */

#endif
