#include "server/sync/file_filter.h"

#include <stdlib.h>

#include "common/base/endian.h"
#include "common/base/buf.h"
#include "common/codec/filter.h"

enum { PATH_ROOM = 8192, RULES_BYTES = 512 << 10 };

struct file_filter {
    struct filter filter;
    const char **rule; /* their texts */
    size_t rules;
    struct buf folder; /* that was judged last */
    bool folder_in;
    uint64_t max_size_bytes; /* 0: any */
    bool no_links, safe_links;
    bool by_lister;
};

int file_filter_new(const struct sync_conf *c, struct file_filter **out, struct err *e)
{
    struct file_filter *s = NEW(struct file_filter);
    const struct filter_rule *bad;
    uint64_t bytes = 0;
    int rc = 0;

    s->folder = BUF_INIT(PATH_ROOM);
    s->folder_in = true;
    s->max_size_bytes = c->max_size_bytes;
    s->no_links = strcmp(c->links, "skip") == 0;
    s->safe_links = strcmp(c->links, "safe") == 0;
    s->by_lister = c->list != NULL && (strcmp(c->list, "hf") == 0 || strcmp(c->list, "pypi") == 0);
    for (size_t i = 0; i < c->filter_count && rc == 0; i++) {
        bytes += strlen(c->filter[i]);
        rc = filter_add_own(&s->filter, slice_str(c->filter[i]), e);
    }
    rc = rc != 0 ? rc : filter_check(&s->filter, &bad, e);
    if (rc == 0 && bytes > RULES_BYTES) {
        rc = err_set(e, E_TOOBIG, "the filter has more than %d bytes of rules; shorten it",
                     RULES_BYTES);
    }
    s->rule = mem_array(s->filter.count + 1, sizeof s->rule[0]);
    for (const struct filter_rule *r = s->filter.first; r != NULL; r = r->next) {
        s->rule[s->rules++] = r->text.p;
    }
    if (rc != 0 || (s->rules == 0 && s->max_size_bytes == 0 && !s->no_links && !s->safe_links)) {
        file_filter_free(&s);
    }
    *out = s;
    return rc != 0 ? E_CONFIG : 0;
}

void file_filter_free(struct file_filter **sp)
{
    struct file_filter *s = *sp;

    *sp = NULL;
    if (s != NULL) {
        filter_fini(&s->filter);
        buf_free(&s->folder);
        free(s->rule);
        free(s);
    }
}

static struct slice folder_of_filtered_path(struct slice path)
{
    while (path.n > 0 && path.p[path.n - 1] != '/') {
        path.n--;
    }
    return slice_first(path, path.n - (path.n > 0));
}

/* From the top down: the first that is out takes all below with it. */
static bool wants_folder(struct file_filter *s, struct slice folder)
{
    if (slice_eq(folder, buf_slice(&s->folder))) {
        return s->folder_in;
    }
    buf_clear(&s->folder);
    buf_adds(&s->folder, folder);
    s->folder_in = s->folder.rc == 0;
    for (size_t i = 1; i <= folder.n && s->folder_in; i++) {
        if (i == folder.n || folder.p[i] == '/') {
            s->folder_in = filter_takes(&s->filter, slice_first(folder, i), true);
        }
    }
    return s->folder_in;
}

bool file_filter_wants_path(struct file_filter *s, struct slice path, bool is_folder)
{
    if (s == NULL || s->rules == 0) {
        return true;
    }
    return wants_folder(s, folder_of_filtered_path(path)) &&
           filter_takes(&s->filter, path, is_folder);
}

bool file_filter_link_stays(struct slice path, struct slice target)
{
    size_t above = 0;
    bool down = false; /* a name was there */

    if (target.n == 0 || target.p[0] == '/' || slice_ends(target, SLICE("/.."))) {
        return false;
    }
    for (size_t i = 0; i < path.n; i++) {
        above += path.p[i] == '/';
    }
    while (target.n > 0) {
        struct slice part = slice_cut(&target, '/');
        if (slice_eq(part, SLICE(".."))) {
            /* Behind a name it may lead anywhere: that can be a link itself. */
            if (down || above-- == 0) {
                return false;
            }
        } else if (part.n != 0) {
            down = true;
        }
    }
    return true;
}

static bool wants_link(const struct file_filter *s, struct slice path, struct slice target)
{
    return !s->no_links && (!s->safe_links || file_filter_link_stays(path, target));
}

static bool too_big(const struct file_filter *s, uint64_t size_bytes)
{
    return s->max_size_bytes != 0 && size_bytes != SYNC_SIZE_UNKNOWN &&
           size_bytes > s->max_size_bytes;
}

bool file_filter_wants_below(struct file_filter *s, struct slice path, uint64_t size_bytes)
{
    return s == NULL || (!too_big(s, size_bytes) && file_filter_wants_path(s, path, false));
}

bool file_filter_wants(struct file_filter *s, const struct sync_entry *en)
{
    if (s == NULL || s->by_lister) {
        return true;
    }
    if (en->type == SYNC_LINK && !wants_link(s, en->path, en->target)) {
        return false;
    }
    if (en->type == SYNC_FILE && too_big(s, en->size_bytes)) {
        return false;
    }
    return file_filter_wants_path(s, en->path, en->type == SYNC_DIR);
}

bool file_filter_wants_old(struct file_filter *s, const struct entry *en)
{
    struct sync_entry as = {.type = en->type == ENTRY_LINK  ? SYNC_LINK
                                    : en->type == ENTRY_DIR ? SYNC_DIR
                                                            : SYNC_FILE,
                            .path = en->path,
                            .size_bytes = en->size_bytes,
                            .target = en->target};
    return file_filter_wants(s, &as);
}

const char *const *file_filter_rules(const struct file_filter *s, size_t *count)
{
    *count = s != NULL ? s->rules : 0;
    return s != NULL ? s->rule : NULL;
}

static void add_list(struct hasher *h, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hasher_add(h, list[i], strlen(list[i]) + 1);
    }
    hasher_add(h, "\n", 1);
}

uint64_t file_filter_print(const struct sync_conf *c)
{
    struct hasher *h = hasher_new();
    struct digest d;
    char size[8];

    add_list(h, c->filter, c->filter_count);
    be_put(size, 8, c->max_size_bytes);
    hasher_add(h, size, sizeof size);
    add_list(h, &c->links, 1);
    add_list(h, &c->list, 1);
    add_list(h, c->suites, c->suites_count);
    add_list(h, c->components, c->components_count);
    add_list(h, c->architectures, c->architectures_count);
    add_list(h, c->repos, c->repos_count);
    add_list(h, c->requirements, c->requirements_count);
    add_list(h, c->python, c->python_count);
    add_list(h, c->platforms, c->platforms_count);
    hasher_final(h, &d);
    hasher_free(&h);
    return be_get((const char *)d.b, 8);
}
