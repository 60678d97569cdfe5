#include "agent/train/tboard.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/hash/crc32c.h"
#include "common/os/newfile.h"

/* Protobuf: a key is field << 3 | wire type. */
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7
};
enum { SESSION_LOG_STATUS = 1, SESSION_LOG_START = 1 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

enum { EVENT_MAX_BYTES = 1 << 16 };

struct tboard {
    int fd;
    struct err first;
};

static void put_varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) {
        buf_byte(b, (uint8_t)(v | 0x80));
    }
    buf_byte(b, (uint8_t)v);
}

static void put_key(struct buf *b, unsigned field, unsigned wire)
{
    put_varint(b, field << 3 | wire);
}

static void put_bytes(struct buf *b, unsigned field, struct slice s)
{
    put_key(b, field, WIRE_BYTES);
    put_varint(b, s.n);
    buf_adds(b, s);
}

static void put_wall_time(struct buf *b, double now_unix_s)
{
    uint64_t bits;

    memcpy(&bits, &now_unix_s, sizeof bits);
    put_key(b, EVENT_WALL_TIME, WIRE_FIXED64);
    buf_le(b, 8, bits);
}

static void put_step(struct buf *b, int64_t step)
{
    put_key(b, EVENT_STEP, WIRE_VARINT);
    put_varint(b, (uint64_t)step);
}

static void put_value(struct buf *summary, const struct tboard_scalar *s)
{
    struct buf value = BUF_INIT(EVENT_MAX_BYTES);
    float f = (float)s->value;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    put_bytes(&value, VALUE_TAG, slice_str(s->tag));
    put_key(&value, VALUE_SIMPLE, WIRE_FIXED32);
    buf_le(&value, 4, bits);
    put_bytes(summary, SUMMARY_VALUE, buf_slice(&value));
    buf_free(&value);
}

void tboard_version_event(double now_unix_s, struct buf *out)
{
    put_wall_time(out, now_unix_s);
    put_bytes(out, EVENT_FILE_VERSION, SLICE("brain.Event:2"));
}

void tboard_start_event(double now_unix_s, int64_t first_step, struct buf *out)
{
    struct buf log = BUF_INIT(16);

    put_key(&log, SESSION_LOG_STATUS, WIRE_VARINT);
    put_varint(&log, SESSION_LOG_START);
    put_wall_time(out, now_unix_s);
    put_step(out, first_step);
    put_bytes(out, EVENT_SESSION_LOG, buf_slice(&log));
    buf_free(&log);
}

void tboard_scalar_event(double now_unix_s, int64_t step, const struct tboard_scalar *s, size_t n,
                         struct buf *out)
{
    struct buf summary = BUF_INIT(EVENT_MAX_BYTES);

    put_wall_time(out, now_unix_s);
    put_step(out, step);
    for (size_t i = 0; i < n; i++) {
        put_value(&summary, &s[i]);
    }
    put_bytes(out, EVENT_SUMMARY, buf_slice(&summary));
    buf_free(&summary);
}

/* CRCs of CRCs are weak, so stored ones are turned and shifted. */
static uint32_t masked(struct slice s)
{
    uint32_t crc = crc32c(0, s);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

void tboard_record(struct slice data, struct buf *out)
{
    struct buf length = BUF_INIT(16);

    buf_le(&length, 8, data.n);
    buf_adds(out, buf_slice(&length));
    buf_le(out, 4, masked(buf_slice(&length)));
    buf_adds(out, data);
    buf_le(out, 4, masked(data));
    buf_free(&length);
}

/* Takes the event. A torn record would hide all that follow it. */
static void append_tboard_event(struct tboard *t, struct buf *event)
{
    struct buf record = BUF_INIT(EVENT_MAX_BYTES);
    struct err e = {0};

    tboard_record(buf_slice(event), &record);
    if (fd_append(t->fd, record.p, record.n, &e) != 0 && t->first.code == 0) {
        t->first = e;
        err_prefix(&t->first, "event file");
    }
    buf_free(&record);
    buf_free(event);
}

int tboard_open(const char *dir, double now_unix_s, int64_t first_step, struct tboard **out,
                struct err *e)
{
    struct buf event = BUF_INIT(EVENT_MAX_BYTES);
    char host[256] = "localhost", path[PATH_MAX];
    struct tboard *t;
    int fd;

    *out = NULL;
    if (gethostname(host, sizeof host) == -1) {
        snprintf(host, sizeof host, "localhost");
    }
    host[sizeof host - 1] = '\0';
    snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.%s.%ld", dir, (long long)now_unix_s,
             host, (long)getpid());
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    t = NEW(struct tboard);
    t->fd = fd;
    tboard_version_event(now_unix_s, &event);
    append_tboard_event(t, &event);
    tboard_start_event(now_unix_s, first_step, &event);
    append_tboard_event(t, &event);
    *out = t;
    return 0;
}

void tboard_add(struct tboard *t, double now_unix_s, int64_t step, const struct tboard_scalar *s,
                size_t n)
{
    struct buf event = BUF_INIT(EVENT_MAX_BYTES);

    tboard_scalar_event(now_unix_s, step, s, n, &event);
    append_tboard_event(t, &event);
}

int tboard_close(struct tboard **tp, struct err *e)
{
    struct tboard *t = *tp;
    int rc;

    if (t == NULL) {
        return 0;
    }
    *tp = NULL;
    rc = t->first.code;
    if (rc != 0 && e != NULL) {
        *e = t->first;
    }
    close(t->fd);
    free(t);
    return rc;
}
