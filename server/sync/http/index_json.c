#include <jansson.h>
#include <time.h>

#include "common/codec/httpdate.h"
#include "common/codec/jread.h"
#include "server/store/tree.h"
#include "server/sync/http/index.h"

/* "Sun, 22 Nov 2026 12:21:05 GMT", "2026-11-22T12:21:05Z" with whatever behind the seconds, a number. */
static void time_of(const json_t *v, struct index_item *out)
{
    struct slice text = slice_str(json_string_value(v));
    struct index_item tail;
    uint64_t unix_s;

    out->mtime_s = INT64_MIN;
    if (json_is_integer(v)) {
        out->mtime_s = json_integer_value(v);
    } else if (text.p != NULL && httpdate_parse(text, (uint64_t)time(NULL), &unix_s)) {
        out->mtime_s = (int64_t)unix_s;
    } else if (text.p != NULL) {
        index_tail_read(text, &tail);
        out->mtime_s = tail.mtime_s;
        out->mtime_step_s = tail.mtime_s != INT64_MIN ? 1 : 0; /* fractions may have been there */
    }
    if (out->mtime_s > (int64_t)1 << 33 || out->mtime_s < -((int64_t)1 << 33)) {
        out->mtime_s = INT64_MIN;
    }
}

static const json_t *one_of(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(o, a);

    return v != NULL ? v : json_object_get(o, b);
}

static bool is_folder(const json_t *o, struct slice *name)
{
    if (name->n != 0 && name->p[name->n - 1] == '/') {
        name->n--;
        return true;
    }
    return json_is_true(json_object_get(o, "is_dir")) ||
           slice_eqs(jread_text(o, "type"), "directory");
}

static int take_item(const json_t *o, struct index_events *ev)
{
    const json_t *name = one_of(o, "name", "path");
    struct slice type = jread_text(o, "type");
    struct index_item it = {.size_bytes = UINT64_MAX};

    if (!json_is_string(name)) {
        ev->left_out++;
        return 0;
    }
    it.name = jread_slice(name);
    it.folder = is_folder(o, &it.name);
    if (!tree_path_valid(it.name) || slice_eqs(type, "other")) {
        ev->left_out++;
        return 0;
    }
    (void)jread_u64(o, "size", &it.size_bytes);
    time_of(one_of(o, "mtime", "mod_time"), &it);
    it.digest_known = !it.folder && digest_parse(jread_text(o, "sha256"), &it.digest);
    return ev->on_item(ev->arg, &it);
}

int index_json_read(struct slice page, struct index_events *ev, struct err *e)
{
    json_t *doc = jread_parse(page, JSON_ALLOW_NUL, jread_values_of(page.n));
    const json_t *list = json_is_object(doc) ? json_object_get(doc, "entries") : doc;
    size_t i;
    json_t *o;
    int rc = 0;

    if (!json_is_array(list)) {
        rc = err_set(e, E_INVALID, "the page is no list in JSON");
    }
    json_array_foreach(list, i, o)
    {
        rc = rc != 0 ? rc : take_item(o, ev);
    }
    json_decref(doc);
    return rc;
}
