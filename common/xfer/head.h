/* head.h - the head of an answer, gathered line by line as libcurl hands it over; 1xx heads are swallowed.
 *
 * owns     answer_fini() frees; what answer_view() gives borrows from it
 * threads  one at a time
 * errors   E_PROTOCOL, E_TOOBIG
 */
#ifndef COMMON_XFER_HEAD_H
#define COMMON_XFER_HEAD_H

#include "common/base/buf.h"
#include "common/xfer/xfer.h"

struct answer {
    struct buf text; /* all lines, names in lower case */
    struct answer_field {
        size_t name_at, name_n, value_at, value_n;
    } * field;
    struct xfer_field *view;
    size_t nfields;
    size_t max_fields;
    int status;
    bool http2;
    bool no_body; /* HEAD */
    bool ended;   /* the final head is whole: what follows are trailers */
    bool has_length;
    bool chunked;
    bool coded; /* Transfer-Encoding stood there */
    uint64_t length_bytes;
};

void answer_init(struct answer *a, size_t max_bytes, size_t max_fields, bool head_only);
/* Sets *whole when this line ended the final head. Trailers are ignored. */
MUST_USE int answer_line(struct answer *a, struct slice line, bool *whole, struct err *e);
void answer_view(struct answer *a, struct xfer_head *out);
void answer_fini(struct answer *a);

#endif
