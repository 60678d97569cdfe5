/* tboard.h - TensorBoard's event file: records of protobuf messages, each with masked CRCs,
 * appended and never changed.
 *
 * owns     struct tboard holds the file; events are flushed when written, so a crash loses none
 * errors   an event that cannot be written is left out whole; the first such error comes back from
 *          tboard_close()
 * source   tensorflow: tsl/lib/io/record_writer.h, event.proto, summary.proto
 */
#ifndef AGENT_TRAIN_TBOARD_H
#define AGENT_TRAIN_TBOARD_H

#include "common/base/buf.h"

struct tboard;

struct tboard_scalar {
    const char *tag;
    double value;
};

/* Creates <dir>/events.out.tfevents.<unix>.<host>.<pid>. What other files of the folder say of
 * first_step and later ones is void: a run that was resumed does those again. */
MUST_USE int tboard_open(const char *dir, double now_unix_s, int64_t first_step,
                         struct tboard **out, struct err *e);
void tboard_add(struct tboard *t, double now_unix_s, int64_t step, const struct tboard_scalar *s,
                size_t n);
MUST_USE int tboard_close(struct tboard **tp, struct err *e);

/* The parts, for tests: one record around `data`; an event's message. */
void tboard_record(struct slice data, struct buf *out);
void tboard_version_event(double now_unix_s, struct buf *out);
void tboard_start_event(double now_unix_s, int64_t first_step, struct buf *out);
void tboard_scalar_event(double now_unix_s, int64_t step, const struct tboard_scalar *s, size_t n,
                         struct buf *out);

#endif
