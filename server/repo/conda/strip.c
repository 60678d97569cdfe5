#include "server/repo/conda/strip.h"

#include <stdlib.h>
#include <yajl/yajl_parse.h>

#include "common/codec/jwrite.h"

enum { DEPTH_MAX = 64 };

struct strip {
    yajl_handle y;
    struct buf *out;
    unsigned depth;
    bool info;       /* below the top's key of that name */
    bool skip;       /* the next value is left out */
    unsigned out_of; /* the depth of one that is being left out; 0: none is */
};

static bool leaves_out(struct strip *s)
{
    bool out = s->out_of != 0 || s->skip;

    s->skip = false;
    return out;
}

static int open_it(struct strip *s, char bracket)
{
    if (++s->depth > DEPTH_MAX) {
        return 0;
    }
    if (s->skip) {
        s->out_of = s->depth;
    }
    if (!leaves_out(s)) {
        jwrite_open(s->out, NULL, bracket);
    }
    return s->out->rc == 0;
}

static int close_it(struct strip *s, char bracket)
{
    if (s->out_of == 0) {
        jwrite_close(s->out, bracket);
    } else if (s->out_of == s->depth) {
        s->out_of = 0;
    }
    s->depth--;
    return s->out->rc == 0;
}

static int on_map(void *arg)
{
    return open_it(arg, '{');
}

static int on_map_end(void *arg)
{
    return close_it(arg, '}');
}

static int on_array(void *arg)
{
    return open_it(arg, '[');
}

static int on_array_end(void *arg)
{
    return close_it(arg, ']');
}

static int on_repodata_strip_key(void *arg, const unsigned char *p, size_t n)
{
    struct strip *s = arg;
    struct slice key = slice_of(p, n);

    if (s->out_of != 0) {
        return 1;
    }
    if (s->depth == 1) {
        s->info = slice_eqs(key, "info");
    }
    s->skip = s->depth == 2 && s->info && slice_eqs(key, "base_url");
    if (!s->skip) {
        jwrite_key(s->out, key);
    }
    return s->out->rc == 0;
}

static int on_repodata_strip_string(void *arg, const unsigned char *p, size_t n)
{
    struct strip *s = arg;

    if (!leaves_out(s)) {
        jwrite_text(s->out, NULL, slice_of(p, n));
    }
    return s->out->rc == 0;
}

static int on_repodata_strip_number(void *arg, const char *p, size_t n)
{
    struct strip *s = arg;

    if (!leaves_out(s)) {
        jwrite_word(s->out, NULL, slice_of(p, n));
    }
    return s->out->rc == 0;
}

static int on_bool(void *arg, int value)
{
    struct strip *s = arg;

    if (!leaves_out(s)) {
        jwrite_bool(s->out, NULL, value != 0);
    }
    return s->out->rc == 0;
}

static int on_repodata_strip_null(void *arg)
{
    struct strip *s = arg;

    if (!leaves_out(s)) {
        jwrite_null(s->out, NULL);
    }
    return s->out->rc == 0;
}

struct strip *strip_open(struct buf *out)
{
    static const yajl_callbacks callbacks = {
        .yajl_null = on_repodata_strip_null,
        .yajl_boolean = on_bool,
        .yajl_number = on_repodata_strip_number,
        .yajl_string = on_repodata_strip_string,
        .yajl_start_map = on_map,
        .yajl_map_key = on_repodata_strip_key,
        .yajl_end_map = on_map_end,
        .yajl_start_array = on_array,
        .yajl_end_array = on_array_end,
    };
    struct strip *s = NEW(struct strip);

    s->out = out;
    s->y = yajl_alloc(&callbacks, NULL, s);
    CHECK(s->y != NULL);
    return s;
}

static int strip_end_status(struct strip *s, yajl_status status, struct err *e)
{
    if (s->out->rc != 0 || s->depth > DEPTH_MAX) {
        return err_set(e, E_TOOBIG, "repodata is too large or too deep to be rewritten");
    }
    return status == yajl_status_ok ? 0 : err_set(e, E_INVALID, "repodata is not valid JSON");
}

int strip_feed(struct strip *s, struct slice bytes, struct err *e)
{
    return strip_end_status(s, yajl_parse(s->y, (const unsigned char *)bytes.p, bytes.n), e);
}

int strip_finish(struct strip *s, struct err *e)
{
    return strip_end_status(s, yajl_complete_parse(s->y), e);
}

void strip_close(struct strip **sp)
{
    struct strip *s = *sp;

    *sp = NULL;
    if (s != NULL) {
        yajl_free(s->y);
        free(s);
    }
}
