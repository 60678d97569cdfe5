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

/* --- one line -------------------------------------------------------------------------------------------------------- */

/* Behind the first `what` in s; false: it is not there. */
static bool behind(struct slice s, const char *what, struct slice *rest)
{
    const char *at = memmem(s.p, s.n, what, strlen(what));

    if (s.n == 0 || at == NULL) {
        return false;
    }
    *rest = slice_from(s, (size_t)(at - s.p) + strlen(what));
    return true;
}

static bool leading_number(struct slice s, unsigned *out)
{
    uint64_t n;
    size_t digits = 0;

    while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9') {
        digits++;
    }
    if (!slice_u64(slice_first(s, digits), &n) || n > 1000000) {
        return false;
    }
    *out = (unsigned)n;
    return true;
}

/* A place on the bus, as the kernel writes it: what is in it goes to a screen. */
static void take_device(struct slice s, struct kmsg *out)
{
    size_t n = 0;

    while (n < s.n && n < sizeof out->device - 1 &&
           ((s.p[n] >= '0' && s.p[n] <= '9') ||
            ((s.p[n] | 0x20) >= 'a' && (s.p[n] | 0x20) <= 'f') || s.p[n] == ':' || s.p[n] == '.')) {
        out->device[n] = s.p[n];
        n++;
    }
    while (n > 0 && out->device[n - 1] == ':') {
        n--;
    }
    out->device[n] = '\0';
}

/* "(PCI:0000:3b:00): 79, ..."; before R4xx without "PCI:". */
static bool take_xid(struct slice s, struct kmsg *out)
{
    struct slice rest;

    if (s.n == 0 || s.p[0] != '(' || !behind(s, "): ", &rest)) {
        return false;
    }
    s = slice_from(s, 1);
    if (slice_starts(s, SLICE("PCI:"))) {
        s = slice_from(s, 4);
    }
    take_device(s, out);
    out->fatal = behind(rest, ", Fatal", &s);
    return leading_number(rest, &out->number);
}

static bool take_text(struct slice text, struct kmsg *out)
{
    struct slice rest;

    if (behind(text, "SXid ", &rest) && take_xid(rest, out)) {
        out->kind = KMSG_SXID;
        return true;
    }
    if (!behind(text, "NVRM: ", &text)) {
        return false;
    }
    if (slice_starts(text, SLICE("Xid ")) && take_xid(slice_from(text, 4), out)) {
        out->kind = KMSG_XID;
        return true;
    }
    if (behind(text, "fallen off the bus", &rest)) {
        out->kind = KMSG_OFF_BUS;
        return true;
    }
    if (behind(text, "RmInitAdapter failed", &rest)) {
        out->kind = KMSG_NO_START;
        if (behind(text, "GPU ", &rest)) {
            take_device(rest, out);
        }
        return true;
    }
    return false;
}

bool kmsg_parse(struct slice line, struct kmsg *out)
{
    struct slice head = slice_cut(&line, ';');

    *out = (struct kmsg){0};
    if (head.n == 0 || head.p[0] == ' ' || line.n == 0) {
        return false;
    }
    slice_cut(&head, ',');
    slice_cut(&head, ',');
    if (!slice_u64(slice_cut(&head, ','), &out->at_us)) {
        return false;
    }
    return take_text(line, out);
}

/* --- what it means --------------------------------------------------------------------------------------------------- */

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

/* --- the log --------------------------------------------------------------------------------------------------------- */

enum { RECORD = 16 << 10, SEEN_MAX = 64 };

struct seen { /* the same again is counted, not told again */
    struct kmsg last;
    unsigned times;
};

struct reading {
    struct seen seen[SEEN_MAX];
    size_t n;
    uint64_t from_us; /* what is older is not looked at */
};

static void note(struct reading *r, struct slice line)
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

/* One read is one record; of a file that stands in for the kernel's, as many as fit: what is cut off is read with the next. */
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
            note(r, slice_cut(&rest, '\n'));
        }
        have = rest.n < sizeof room ? rest.n : 0;
        memmove(room, rest.p, have);
    }
}

static void tell(const struct seen *s, uint64_t now_us, struct finding *f)
{
    static const char reset[] =
        "drain the node and reset the GPU (nvidia-smi -r), or reboot; one that does it again goes back";
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
        finding_bad(f, "GPU_NO_START", reset, "%s could not be started, %s ago%s", device, when,
                    times);
        return;
    case KMSG_SXID:
        if (k->fatal) {
            finding_bad(f, "SXID_FATAL", "reset GPUs and NVSwitches together, or reboot",
                        "%s: fatal SXid %u, %s ago%s", device, k->number, when, times);
        } else {
            finding_warn(f, "SXID", "watch it; NVIDIA's Fabric Manager guide has the number",
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
        finding_warn(f, "XID", "a program's own error as a rule; many of them on one GPU are not",
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
                     failed == EPERM || failed == EACCES ? "; root and CAP_SYSLOG may read it"
                                                         : "");
        free(r);
        return;
    }
    failed = read_log(fd, r);
    close(fd);
    if (failed != 0) {
        finding_skip(f, "/dev/kmsg: %s", strerror(failed));
    }
    for (size_t i = 0; i < r->n; i++) {
        tell(&r->seen[i], now_us, f);
    }
    finding_ok(f, "the kernel's log has no Xid that matters");
    free(r);
}
