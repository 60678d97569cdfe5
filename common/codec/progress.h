/* progress.h - a line on a terminal that shows progress: share, bytes, rate, time left.
 *
 * If stderr is not a terminal there is no bar: progress_open() returns NULL, which all calls
 * accept.
 */
#ifndef COMMON_CODEC_PROGRESS_H
#define COMMON_CODEC_PROGRESS_H

#include <stdint.h>

struct progress;

/* "####......": the share of total that is done, in so many cells; room for cells + 1. */
void progress_bar(uint64_t done, uint64_t total, unsigned cells, char *out);

struct progress *progress_open(const char *label);
void progress_name(struct progress *p, const char *label);  /* from the next draw on */
void progress_counts(struct progress *p, const char *what); /* not bytes: "files" */
/* total_bytes UINT64_MAX: not known. Draws at most ten times a second. */
void progress_draw(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint64_t now_ms);
/* Removes the line, so that a text can be written; the next draw restores it. */
void progress_wipe(const struct progress *p);
void progress_close(struct progress **pp); /* wipes the line */

#endif
