#include "agent/train/jsonline.h"

#include <yajl/yajl_parse.h>

struct walk {
    struct slice field;
    struct buf *out;
    unsigned depth;
    bool object; /* the outermost value is one */
    bool ours;   /* the value to come is the field's */
    bool found;  /* the field is a string */
};

/* A value other than a string. */
static int other(struct walk *w)
{
    w->found = w->found && !w->ours;
    w->ours = false;
    return 1;
}

static int on_jsonline_null(void *arg)
{
    return other(arg);
}

static int on_boolean(void *arg, int value)
{
    (void)value;
    return other(arg);
}

static int on_jsonline_number(void *arg, const char *text, size_t n)
{
    (void)text;
    (void)n;
    return other(arg);
}

static int on_jsonline_string(void *arg, const unsigned char *text, size_t n)
{
    struct walk *w = arg;

    if (w->ours) {
        buf_clear(w->out);
        buf_add(w->out, text, n);
        w->found = true;
        w->ours = false;
    }
    return 1;
}

static int on_jsonline_open(void *arg)
{
    struct walk *w = arg;

    (void)other(w);
    w->depth++;
    return 1;
}

static int on_jsonline_object(void *arg)
{
    struct walk *w = arg;

    w->object = w->object || w->depth == 0;
    return on_jsonline_open(w);
}

static int on_jsonline_close(void *arg)
{
    struct walk *w = arg;

    w->depth--;
    return 1;
}

static int on_jsonline_key(void *arg, const unsigned char *key, size_t n)
{
    struct walk *w = arg;

    w->ours = w->depth == 1 && w->object && slice_eq(slice_of(key, n), w->field);
    return 1;
}

int jsonline_text(struct slice line, struct slice field, struct buf *out, struct err *e)
{
    static const yajl_callbacks on = {
        .yajl_null = on_jsonline_null,
        .yajl_boolean = on_boolean,
        .yajl_number = on_jsonline_number,
        .yajl_string = on_jsonline_string,
        .yajl_start_map = on_jsonline_object,
        .yajl_map_key = on_jsonline_key,
        .yajl_end_map = on_jsonline_close,
        .yajl_start_array = on_jsonline_open,
        .yajl_end_array = on_jsonline_close,
    };
    struct walk w = {.field = field, .out = out};
    yajl_handle h = yajl_alloc(&on, NULL, &w);
    int rc = 0;

    CHECK(h != NULL);
    buf_clear(out);
    yajl_config(h, yajl_dont_validate_strings, 1);
    if (yajl_parse(h, (const unsigned char *)line.p, line.n) != yajl_status_ok ||
        yajl_complete_parse(h) != yajl_status_ok) {
        rc = err_set(e, E_CORRUPT, "the line is not valid JSON");
    } else if (!w.object) {
        rc = err_set(e, E_CORRUPT, "the line is not a JSON object");
    } else if (!w.found) {
        rc = err_set(e, E_CORRUPT, "the object has no string \"" SLICE_FMT "\"", SLICE_ARG(field));
    } else if (out->rc != 0) {
        rc = err_set(e, out->rc, "the text is too long");
    }
    yajl_free(h);
    return rc;
}
