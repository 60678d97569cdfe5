/* tboard.h - writes TensorBoard's event file: records of protobuf messages, each with masked
 * CRCs, only appended.
 *
 * owns     struct tboard holds the file; events are flushed when written, so a crash loses none
 * errors   an event that cannot be written is omitted as a whole; tboard_close() returns the first
 *          such error
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

/* Creates <dir>/events.out.tfevents.<unix>.<host>.<pid>. Events for first_step and later ones in
 * other files of the folder become void: a resumed run repeats those steps. */
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
