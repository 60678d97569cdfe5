/* progress.h - one line on a terminal that says how far it is: share, bytes, rate, time left.
 *
 * Without a terminal on stderr there is no bar: progress_open() gives NULL, which all calls accept.
 */
#ifndef COMMON_CODEC_PROGRESS_H
#define COMMON_CODEC_PROGRESS_H

#include <stdint.h>

struct progress;

/* "####......": how much of total is done, in so many cells; room for cells + 1. */
void progress_bar(uint64_t done, uint64_t total, unsigned cells, char *out);

struct progress *progress_open(const char *label);
void progress_name(struct progress *p, const char *label);  /* from the next draw on */
void progress_counts(struct progress *p, const char *what); /* not bytes: "files" */
/* total_bytes UINT64_MAX: not known. Draws ten times a second at most. */
void progress_draw(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint64_t now_ms);
/* The line goes, for one of text; the next draw brings it back. */
void progress_wipe(const struct progress *p);
void progress_close(struct progress **pp); /* wipes the line */

#endif
