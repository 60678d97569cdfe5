/* multipart.h - a body of several parts, one behind the other (multipart/form-data), as it comes:
 * bytes in, events out.
 *
 * Strict, because two readers must not take one body for two things: lines end in CRLF, nothing
 * stands before the first boundary, a boundary's line has nothing behind it, the last one closes. A
 * part's data is told as it comes; only what may become a boundary is held back.
 *
 *     multipart_begin(&m, boundary, &events, arg);
 *     rc = multipart_feed(&m, bytes, &e); ...; rc = multipart_end(&m, &e); multipart_fini(&m);
 *
 * owns     a part's texts are borrowed during on_part
 * threads  one at a time; pure
 * errors   E_PROTOCOL: no such body; E_TOOBIG: more parts, or a longer head, than there may be;
 *          what events give. It is over then
 * source   RFC 2046 5.1, RFC 7578, RFC 8187 (filename*)
 */
#ifndef COMMON_CODEC_MULTIPART_H
#define COMMON_CODEC_MULTIPART_H

#include "common/base/arena.h"
#include "common/base/buf.h"

enum {
    MULTIPART_BOUNDARY_MAX = 70,
    MULTIPART_HEAD_BYTES = 8 << 10,
    MULTIPART_PARTS_MAX = 10000,
};

struct multipart_part {
    struct slice name;     /* decoded */
    struct slice filename; /* likewise; p == NULL: none */
};

struct multipart_events {
    int (*on_part)(void *arg, const struct multipart_part *p, struct err *e);
    int (*on_data)(void *arg, struct slice bytes,
                   struct err *e); /* any number of times, never empty */
    int (*on_part_end)(void *arg, struct err *e);
};

struct multipart {
    const struct multipart_events *ev;
    void *arg;
    enum multipart_state {
        MULTIPART_FRONT,  /* nothing but a boundary may come */
        MULTIPART_BEHIND, /* a boundary was: its line's end, or the sign that it was the last */
        MULTIPART_HEAD,
        MULTIPART_DATA,
        MULTIPART_OVER,
    } state;
    char line[4 + MULTIPART_BOUNDARY_MAX]; /* CR LF - - boundary: CR stands nowhere else in it */
    size_t line_bytes;
    size_t matched; /* bytes of it that were held back */
    char behind[2];
    size_t behind_bytes;
    struct buf head;
    size_t parts;
};

/* Of a Content-Type field. False: not multipart/form-data, or no boundary that can be. */
MUST_USE bool multipart_boundary(struct slice content_type, struct arena *a, struct slice *out);
void multipart_begin(struct multipart *m, struct slice boundary, const struct multipart_events *ev,
                     void *arg);
MUST_USE int multipart_feed(struct multipart *m, struct slice bytes, struct err *e);
/* Was it whole? */
MUST_USE int multipart_end(const struct multipart *m, struct err *e);
void multipart_fini(struct multipart *m);

#endif
