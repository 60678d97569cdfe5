#include "common/xfer/head.h"

#include <stdlib.h>

void answer_init(struct answer *a, size_t max_bytes, size_t max_fields, bool head_only)
{
    *a = (struct answer){
        .text = BUF_INIT(max_bytes), .max_fields = max_fields, .no_body = head_only};
    a->field = mem_array(max_fields, sizeof a->field[0]);
}

void answer_fini(struct answer *a)
{
    buf_free(&a->text);
    free(a->field);
    free(a->view);
    a->field = NULL;
    a->view = NULL;
}

/* A new head begins: after 100 Continue, say. */
static int status_line(struct answer *a, struct slice line, struct err *e)
{
    struct slice version = slice_cut(&line, ' ');
    uint64_t status;

    buf_clear(&a->text);
    a->nfields = 0;
    a->has_length = a->chunked = a->coded = false;
    a->http2 = slice_starts(version, SLICE("HTTP/2"));
    if (!slice_u64(slice_cut(&line, ' '), &status) || status < 100 || status > 599) {
        return err_set(e, E_PROTOCOL, "a status line that is none");
    }
    a->status = (int)status;
    return 0;
}

static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* libcurl looks at the field only when the body comes, which is too late to tell a client. It would undo compression, too; but
 * nobody asked for any, and it does not see that the end of what was compressed is missing. */
static int learn_coding(struct answer *a, struct slice value, struct err *e)
{
    struct slice rest = value;

    while (rest.n > 0) {
        struct slice coding = slice_trim(slice_cut(&rest, ','));
        bool chunked = slice_ieq(coding, SLICE("chunked"));
        if (coding.n > 0 && (!chunked || a->chunked) && !slice_ieq(coding, SLICE("identity"))) {
            return err_set(e, E_PROTOCOL, "a Transfer-Encoding that is not supported: " SLICE_FMT,
                           SLICE_ARG(slice_first(value, value.n < 40 ? value.n : 40)));
        }
        a->chunked = a->chunked || chunked;
    }
    a->coded = true;
    return 0;
}

static int learn_framing(struct answer *a, struct slice name, struct slice value, struct err *e)
{
    uint64_t n;

    if (slice_eq(name, SLICE("content-length"))) {
        if (!slice_u64(value, &n) || (a->has_length && n != a->length_bytes)) {
            return err_set(e, E_PROTOCOL, "a Content-Length that is none, or two that differ");
        }
        a->has_length = true;
        a->length_bytes = n;
    } else if (slice_eq(name, SLICE("transfer-encoding"))) {
        return learn_coding(a, value, e);
    }
    return 0;
}

static int field_line(struct answer *a, struct slice line, struct err *e)
{
    ptrdiff_t colon = slice_find(line, ':');
    struct answer_field *f;
    struct slice value;
    char *name;

    if (colon <= 0) {
        return err_set(e, E_PROTOCOL, "a header line without a name");
    }
    if (a->nfields == a->max_fields) {
        return err_set(e, E_TOOBIG, "more than %zu header fields", a->max_fields);
    }
    value = slice_trim(slice_from(line, (size_t)colon + 1));
    f = &a->field[a->nfields++];
    *f = (struct answer_field){a->text.n, (size_t)colon, a->text.n + (size_t)colon, value.n};
    buf_adds(&a->text, slice_first(line, (size_t)colon));
    buf_adds(&a->text, value);
    if (a->text.rc != 0) {
        return err_set(e, E_TOOBIG, "a head of more than %zu bytes", a->text.max);
    }
    name = a->text.p + f->name_at;
    for (size_t i = 0; i < f->name_n; i++) {
        if (name[i] >= 'A' && name[i] <= 'Z') {
            name[i] = (char)(name[i] + 32);
        }
        if (!is_token(name[i])) {
            return err_set(e, E_PROTOCOL, "a header name with byte 0x%02x", (uint8_t)name[i]);
        }
    }
    for (size_t i = 0; i < value.n; i++) {
        if (((uint8_t)value.p[i] < 0x20 && value.p[i] != '\t') || value.p[i] == 0x7f) {
            return err_set(e, E_PROTOCOL, "a header value with byte 0x%02x", (uint8_t)value.p[i]);
        }
    }
    return learn_framing(a, slice_of(name, f->name_n), value, e);
}

int answer_line(struct answer *a, struct slice line, bool *whole, struct err *e)
{
    *whole = false;
    if (line.n > 0 && line.p[line.n - 1] == '\n') {
        line.n--;
    }
    if (line.n > 0 && line.p[line.n - 1] == '\r') {
        line.n--;
    }
    if (a->ended) {
        return 0;
    }
    if (slice_starts(line, SLICE("HTTP/"))) {
        return status_line(a, line, e);
    }
    if (a->status == 0) {
        return err_set(e, E_PROTOCOL, "a head without a status line");
    }
    if (line.n != 0) {
        return field_line(a, line, e);
    }
    if (a->status == 101) {
        return err_set(e, E_PROTOCOL, "101 to a request that asked for no other protocol");
    }
    a->ended = *whole = a->status >= 200;
    return 0;
}

void answer_view(struct answer *a, struct xfer_head *out)
{
    bool empty = a->no_body || a->status == 204 || a->status == 304;

    free(a->view);
    a->view = mem_array(a->nfields + 1, sizeof a->view[0]);
    for (size_t i = 0; i < a->nfields; i++) {
        const struct answer_field *f = &a->field[i];
        a->view[i].name = slice_of(a->text.p + f->name_at, f->name_n);
        a->view[i].value = slice_of(a->text.p + f->value_at, f->value_n);
    }
    *out = (struct xfer_head){
        .status = a->status,
        /* Transfer-Encoding overrides Content-Length (RFC 9112 6.3). */
        .content_length = a->has_length && !a->coded ? a->length_bytes : XFER_UNKNOWN,
        .framed = empty || a->http2 || (a->coded ? a->chunked : a->has_length),
        .fields = a->view,
        .nfields = a->nfields,
    };
}

struct slice xfer_head_field(const struct xfer_head *h, const char *name)
{
    for (size_t i = 0; i < h->nfields; i++) {
        if (slice_eqs(h->fields[i].name, name)) {
            return h->fields[i].value;
        }
    }
    return SLICE_NONE;
}
