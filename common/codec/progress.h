/* progress.h - one line on a terminal that says how far it is: share, bytes, rate, time left.
 *
 * Without a terminal on stderr there is no bar: progress_open() gives NULL, which all calls accept.
 */
#ifndef COMMON_CODEC_PROGRESS_H
#define COMMON_CODEC_PROGRESS_H

#include <stdint.h>

struct progress;

struct progress *progress_open(const char *label);
/* total_bytes UINT64_MAX: not known. Draws ten times a second at most. */
void progress_draw(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint64_t now_ms);
void progress_close(struct progress **pp); /* wipes the line */

#endif
