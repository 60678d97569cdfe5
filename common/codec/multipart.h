/* multipart.h - parses a body of several parts (multipart/form-data) as it arrives: bytes in,
 * events out.
 *
 * It is strict, because two parsers must not read one body in two ways: lines end in CRLF,
 * nothing precedes the first boundary, nothing follows a boundary on its line, and the last
 * boundary is required. A part's data is passed on as it arrives; only bytes that may become a
 * boundary are held back.
 *
 *     multipart_begin(&m, boundary, &events, arg);
 *     rc = multipart_feed(&m, bytes, &e); ...; rc = multipart_end(&m, &e); multipart_fini(&m);
 *
 * owns     a part's texts are borrowed during on_part
 * threads  one at a time; pure
 * errors   E_PROTOCOL: not such a body; E_TOOBIG: more parts, or a longer header, than allowed;
 *          any result of an event. After an error the parser is done
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
        MULTIPART_FRONT, /* only a boundary may come */
        /* after a boundary: the end of its line, or the sign that it was the last */
        MULTIPART_BEHIND,
        MULTIPART_HEAD,
        MULTIPART_DATA,
        MULTIPART_OVER,
    } state;
    char line[4 + MULTIPART_BOUNDARY_MAX]; /* CR LF - - boundary: CR occurs nowhere else in it */
    size_t line_bytes;
    size_t matched; /* its bytes that are held back */
    char behind[2];
    size_t behind_bytes;
    struct buf head;
    size_t parts;
};

/* From a Content-Type field. False: not multipart/form-data, or an invalid boundary. */
MUST_USE bool multipart_boundary(struct slice content_type, struct arena *a, struct slice *out);
void multipart_begin(struct multipart *m, struct slice boundary, const struct multipart_events *ev,
                     void *arg);
MUST_USE int multipart_feed(struct multipart *m, struct slice bytes, struct err *e);
/* Was the body complete? */
MUST_USE int multipart_end(const struct multipart *m, struct err *e);
void multipart_fini(struct multipart *m);

#endif
