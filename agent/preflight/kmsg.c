#include "agent/preflight/kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/preflight/look.h"
#include "common/codec/units.h"
#include "common/os/clock.h"

/* --- one line --------------------------------------------------------------------------------- */

/* Takes `what` off the beginning of *s; false: it begins otherwise. */
static bool skip_kmsg_text(struct slice *s, struct slice what)
{
    if (!slice_starts(*s, what)) {
        return false;
    }
    *s = slice_from(*s, what.n);
    return true;
}

static bool kmsg_contains(struct slice s, const char *what)
{
    return s.n > 0 && memmem(s.p, s.n, what, strlen(what)) != NULL;
}

static bool take_kmsg_number(struct slice *s, unsigned *out)
{
    uint64_t n;
    size_t digits = 0;

    while (digits < s->n && s->p[digits] >= '0' && s->p[digits] <= '9') {
        digits++;
    }
    if (!slice_u64(slice_first(*s, digits), &n) || n > 1000000) {
        return false;
    }
    *out = (unsigned)n;
    *s = slice_from(*s, digits);
    return true;
}

/* A place on the bus, as the kernel writes it: what is in it goes to a screen. */
static bool take_device(struct slice *s, struct kmsg *out)
{
    size_t n = 0;

    while (n < s->n && n < sizeof out->device - 1 &&
           ((s->p[n] >= '0' && s->p[n] <= '9') ||
            ((s->p[n] | 0x20) >= 'a' && (s->p[n] | 0x20) <= 'f') || s->p[n] == ':' ||
            s->p[n] == '.')) {
        out->device[n] = s->p[n];
        n++;
    }
    while (n > 0 && out->device[n - 1] == ':') {
        n--;
    }
    out->device[n] = '\0';
    *s = slice_from(*s, n);
    return n > 0;
}

/* "(PCI:0000:3b:00): 79, ..." */
static bool take_xid(struct slice s, struct kmsg *out)
{
    if (!skip_kmsg_text(&s, SLICE("(PCI:")) || !take_device(&s, out) ||
        !skip_kmsg_text(&s, SLICE("): ")) || !take_kmsg_number(&s, &out->number)) {
        return false;
    }
    out->fatal = slice_starts(s, SLICE(", Fatal"));
    return true;
}

/* "GPU 0000:01:00.0: RmInitAdapter failed! ...", and what the driver says of one that is gone. */
static bool take_gone(struct slice s, struct kmsg *out)
{
    static const char gone[] = "fallen off the bus";

    out->kind = KMSG_OFF_BUS;
    if (slice_starts(s, SLICE("fallen off the bus"))) {
        return true;
    }
    if (skip_kmsg_text(&s, SLICE("The NVIDIA GPU "))) {
        return take_device(&s, out) && kmsg_contains(s, gone);
    }
    if (!skip_kmsg_text(&s, SLICE("GPU ")) || !take_device(&s, out) ||
        !skip_kmsg_text(&s, SLICE(": "))) {
        return false;
    }
    if (slice_starts(s, SLICE("RmInitAdapter failed"))) {
        out->kind = KMSG_NO_START;
        return true;
    }
    return kmsg_contains(s, gone);
}

/* Any user can write text into the kernel's log: the report of a crash has the program's name, 15
 * bytes of the user's choice at the beginning of the line, and a file's name. So the driver's own
 * text must be where the driver puts it, from the first byte on. */
static bool take_record_text(struct slice text, struct kmsg *out)
{
    unsigned which;

    if (kmsg_contains(text, "]: segfault") || kmsg_contains(text, "traps:")) {
        return false;
    }
    if (skip_kmsg_text(&text, SLICE("nvidia-nvswitch"))) {
        out->kind = KMSG_SXID;
        return take_kmsg_number(&text, &which) && skip_kmsg_text(&text, SLICE(": SXid ")) &&
               take_xid(text, out);
    }
    if (!skip_kmsg_text(&text, SLICE("NVRM: "))) {
        return false;
    }
    if (skip_kmsg_text(&text, SLICE("Xid "))) {
        out->kind = KMSG_XID;
        return take_xid(text, out);
    }
    return take_gone(text, out);
}

bool kmsg_parse(struct slice line, struct kmsg *out)
{
    enum {
        LEVELS = 8
    }; /* a record's first number is 8 times who speaks, 0 for the kernel, and its level */
    struct slice head = slice_cut(&line, ';');
    uint64_t from;

    *out = (struct kmsg){0};
    if (head.n == 0 || head.p[0] == ' ' || line.n == 0) {
        return false;
    }
    if (!slice_u64(slice_cut(&head, ','), &from) || from >= LEVELS) {
        return false;
    }
    slice_cut(&head, ',');
    if (!slice_u64(slice_cut(&head, ','), &out->at_us)) {
        return false;
    }
    return take_record_text(line, out);
}

/* --- what it means ---------------------------------------------------------------------------- */

enum whose { NONE, PROGRAM, NODE };

static const struct xid {
    unsigned number;
    enum whose whose;
    const char *what;
} xids[] = {
#define XID(number, whose, what) {number, whose, what},
#include "agent/preflight/xids.def"
#undef XID
};

static const struct xid *find_xid(unsigned number)
{
    for (size_t i = 0; i < ARRAY_LEN(xids); i++) {
        if (xids[i].number == number) {
            return &xids[i];
        }
    }
    return NULL;
}

const char *xid_what(unsigned number, bool *node)
{
    const struct xid *x = find_xid(number);

    *node = x != NULL && x->whose == NODE;
    return x != NULL ? x->what : NULL;
}

/* --- the log ---------------------------------------------------------------------------------- */

enum { RECORD = 16 << 10, SEEN_MAX = 64 };

struct seen { /* a repeated message is counted, not reported again */
    struct kmsg last;
    unsigned times;
};

struct reading {
    struct seen seen[SEEN_MAX];
    size_t n;
    uint64_t from_us; /* what is older is not looked at */
};

static void note_kmsg_line(struct reading *r, struct slice line)
{
    struct kmsg k;

    if (!kmsg_parse(line, &k) || k.at_us < r->from_us) {
        return;
    }
    for (size_t i = 0; i < r->n; i++) {
        struct seen *s = &r->seen[i];
        if (s->last.kind == k.kind && s->last.number == k.number && s->last.fatal == k.fatal &&
            strcmp(s->last.device, k.device) == 0) {
            s->last = k;
            s->times++;
            return;
        }
    }
    if (r->n < SEEN_MAX) {
        r->seen[r->n++] = (struct seen){k, 1};
    }
}

/* One read is one record; of a file that stands in for the kernel's, as many as fit: what is cut
 * off is read with the next. */
static int read_log(int fd, struct reading *r)
{
    char room[RECORD];
    size_t have = 0;

    for (;;) {
        ssize_t n = read(fd, room + have, sizeof room - have);
        struct slice rest;

        if (n == -1 && (errno == EPIPE || errno == EINTR)) {
            continue; /* records were overwritten before we read them: the next one is there */
        }
        if (n <= 0) {
            return n == 0 || errno == EAGAIN ? 0 : errno;
        }
        rest = slice_of(room, have + (size_t)n);
        while (slice_find(rest, '\n') >= 0) {
            note_kmsg_line(r, slice_cut(&rest, '\n'));
        }
        have = rest.n < sizeof room ? rest.n : 0;
        memmove(room, rest.p, have);
    }
}

static void report_kmsg_faults(const struct seen *s, uint64_t now_us, struct finding *f)
{
    static const char reset[] =
        "reset the GPU (nvidia-smi -r) and set xid_age so that older entries do not count, or "
        "reboot, which clears the log; return a GPU that fails again for replacement";
    const struct kmsg *k = &s->last;
    const char *device = k->device[0] != '\0' ? k->device : "a GPU";
    char when[UNITS_TEXT], times[32] = "";
    const struct xid *x = k->kind == KMSG_XID ? find_xid(k->number) : NULL;

    span_format(now_us > k->at_us ? (now_us - k->at_us) / 1000 : 0, when);
    if (s->times > 1) {
        snprintf(times, sizeof times, ", %u times", s->times);
    }
    switch (k->kind) {
    case KMSG_OFF_BUS:
        finding_bad(f, "XID_79", reset, "a GPU has fallen off the bus, %s ago%s", when, times);
        return;
    case KMSG_NO_START:
        finding_bad(f, "GPU_NO_START", reset, "%s could not be initialised, %s ago%s", device, when,
                    times);
        return;
    case KMSG_SXID:
        if (k->fatal) {
            finding_bad(f, "SXID_FATAL", "reset GPUs and NVSwitches together, or reboot",
                        "%s: fatal SXid %u, %s ago%s", device, k->number, when, times);
        } else {
            finding_warn(f, "SXID", "watch it; NVIDIA's Fabric Manager guide explains the number",
                         "%s: SXid %u, %s ago%s", device, k->number, when, times);
        }
        return;
    case KMSG_XID:
        break;
    }
    if (x != NULL && x->whose == NONE) {
        return;
    }
    if (x != NULL && x->whose == NODE) {
        char code[24];
        snprintf(code, sizeof code, "XID_%u", k->number);
        finding_bad(f, code, reset, "%s: Xid %u, %s, %s ago%s", device, k->number, x->what, when,
                    times);
    } else {
        finding_warn(f, "XID", "usually the program's own error; many on one GPU point to the GPU",
                     "%s: Xid %u%s%s, %s ago%s", device, k->number, x != NULL ? ", " : "",
                     x != NULL ? x->what : "", when, times);
    }
}

void check_xid(struct look *l, struct finding *f)
{
    struct timespec up;
    struct reading *r = NEW(struct reading);
    char path[PATH_MAX];
    uint64_t age_ms, now_us;
    int fd, failed;

    clock_gettime(CLOCK_BOOTTIME, &up);
    now_us = (uint64_t)up.tv_sec * 1000000 + (uint64_t)up.tv_nsec / 1000;
    if (expect_u64(&l->expect, EXPECT_xid_age, &age_ms) && now_us > age_ms * 1000) {
        r->from_us = now_us - age_ms * 1000;
    }
    fd = sight_path(&l->sight, path, "/dev/kmsg") ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                                                  : -1;
    if (fd == -1) {
        failed = errno;
        finding_skip(f, "/dev/kmsg: %s%s", strerror(failed),
                     failed == EPERM || failed == EACCES ? "; run as root or with CAP_SYSLOG" : "");
        free(r);
        return;
    }
    failed = read_log(fd, r);
    close(fd);
    if (failed != 0) {
        finding_skip(f, "/dev/kmsg: %s", strerror(failed));
    }
    for (size_t i = 0; i < r->n; i++) {
        report_kmsg_faults(&r->seen[i], now_us, f);
    }
    finding_ok(f, "the kernel's log has no Xid that blames the node");
    free(r);
}
