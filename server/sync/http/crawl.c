/* crawl.c - folder pages from the top down, a few at a time. Folders that lead to themselves end at the depth, at the number of
 * entries, or at the bytes that a list may have. */
#include <stdlib.h>

#include "server/sync/http/http_engine.h"
#include "server/sync/http/index.h"

enum { PAGE_BYTES = 64 << 20, DEPTH_MAX = 64, PATH_ROOM = 4096, DENIED_LOGGED = 20 };

struct folder { /* waits, or its page comes */
    struct list node;
    struct crawl *c;
    struct doc *doc;
    unsigned depth;
    size_t n;
    char path[]; /* without '/' at the end; empty: the top */
};

struct crawl {
    struct http_engine *g;
    struct list waiting, coming;
    unsigned count; /* coming */
    uint64_t entries, folders;
    uint64_t left_out, denied;
    bool bare; /* a file without size and time was listed: each must be asked for */
    bool over;
};

static void folder_add(struct crawl *c, struct slice path, unsigned depth)
{
    struct folder *f = mem_new(sizeof *f + path.n + 1);

    f->c = c;
    f->depth = depth;
    f->n = path.n;
    if (path.n != 0) {
        memcpy(f->path, path.p, path.n);
    }
    list_push_back(&c->waiting, &f->node);
}

static void folder_free(struct folder *f)
{
    doc_free(&f->doc);
    list_remove(&f->node);
    free(f);
}

static void end(struct crawl *c, int rc, const struct err *why)
{
    struct engine_listed l = {.left_out = c->left_out, .partial = c->denied != 0};

    c->over = true;
    if (rc == 0 && c->bare) {
        c->g->site->log(c->g->site->log_arg,
                        "the pages tell neither sizes nor times: every file is asked for");
    }
    http_listed(c->g, rc, why, &l);
}

struct page_of { /* a page being read */
    struct folder *f;
    struct buf path;
    struct err *e;
};

static int on_item(void *arg, const struct index_item *it)
{
    struct page_of *p = arg;
    struct crawl *c = p->f->c;
    struct sync_entry en = {.type = it->folder ? SYNC_DIR : SYNC_FILE,
                            .size_bytes = it->size_bytes,
                            .size_step = it->size_step,
                            .mtime_ns = it->mtime_s != INT64_MIN ? it->mtime_s * 1000000000
                                                                 : SYNC_TIME_UNKNOWN,
                            .mtime_step_s = it->mtime_step_s,
                            .digest_known = it->digest_known,
                            .digest = it->digest};

    buf_clear(&p->path);
    buf_add(&p->path, p->f->path, p->f->n);
    if (p->f->n != 0) {
        buf_byte(&p->path, '/');
    }
    buf_adds(&p->path, it->name);
    en.path = buf_slice(&p->path);
    if (p->path.rc != 0 || en.path.n >= PATH_ROOM) {
        c->left_out++;
        return 0;
    }
    if (!sift_wants_path(c->g->site->sift, en.path, it->folder)) {
        return it->folder ? 0 : c->g->ev.on_entry(c->g->arg, &en); /* which counts it */
    }
    if (++c->entries > c->g->site->entries_max) {
        return err_set(p->e, E_TOOBIG, "the pages list more than %llu entries, see max_entries",
                       (unsigned long long)c->g->site->entries_max);
    }
    if (it->folder) {
        if (p->f->depth == DEPTH_MAX) {
            return err_set(p->e, E_TOOBIG, "folders are more than %d deep, maybe a ring",
                           DEPTH_MAX);
        }
        folder_add(c, en.path, p->f->depth + 1);
        return 0; /* a folder is there when something is in it: pages tell no useful time */
    }
    c->bare = c->bare || (!it->digest_known && it->size_bytes == SYNC_SIZE_UNKNOWN &&
                          en.mtime_ns == SYNC_TIME_UNKNOWN);
    return c->g->ev.on_entry(c->g->arg, &en);
}

static bool says_json(const struct doc *d)
{
    return strncmp(d->content_type, "application/json", 16) == 0;
}

static int read_page(struct folder *f, struct doc *d, struct err *e)
{
    struct page_of p = {.f = f, .path = BUF_INIT(2 * PATH_ROOM), .e = e};
    struct index_events ev = {.on_item = on_item, .arg = &p};
    int rc = index_read(says_json(d) ? INDEX_JSON : INDEX_HTML, buf_slice(&d->body),
                        slice_str(d->final_url), &ev, e);

    f->c->left_out += ev.left_out;
    buf_free(&p.path);
    return rc;
}

static void go_on(struct crawl *c);

static void on_page(struct doc *d, int rc)
{
    struct folder *f = d->arg;
    struct crawl *c = f->c;
    struct err why = d->why;
    bool top = f->n == 0;

    if (rc == 0) {
        err_clear(&why);
        rc = read_page(f, d, &why);
    } else if (!top && (rc == E_DENIED || rc == E_NOTFOUND)) {
        /* A folder that cannot be read is not an empty one: nothing is removed. */
        if (++c->denied <= DENIED_LOGGED) {
            c->g->site->log(c->g->site->log_arg, "folder %s: %s", f->path, d->why.text);
        }
        rc = 0;
    } else {
        err_prefix(&why, "folder /%.100s", f->path);
    }
    folder_free(f);
    c->count--;
    if (rc != 0) {
        end(c, rc, &why);
    } else {
        go_on(c);
    }
}

static void go_on(struct crawl *c)
{
    while (!c->over && c->count < c->g->site->parallel && !list_empty(&c->waiting)) {
        struct folder *f = LIST_ITEM(list_pop_front(&c->waiting), struct folder, node);
        struct arena a = {0};
        struct slice path = arena_fmt(&a, "%.*s%s", (int)f->n, f->path, f->n != 0 ? "/" : "");
        char *url = http_url_of(c->g, path);
        list_push_back(&c->coming, &f->node);
        c->count++;
        f->doc = doc_ask(c->g, url, "application/json, */*;q=0.5", PAGE_BYTES, on_page, f);
        free(url);
        arena_fini(&a);
    }
    if (!c->over && c->count == 0) {
        end(c, 0, NULL);
    }
}

static void crawl_start(struct http_engine *g)
{
    struct crawl *c = NEW(struct crawl);

    c->g = g;
    list_init(&c->waiting);
    list_init(&c->coming);
    g->lister_state = c;
    folder_add(c, SLICE(""), 0);
    go_on(c);
}

static void free_all(struct list *folders)
{
    LIST_EACH (folders, it) {
        folder_free(LIST_ITEM(it, struct folder, node));
    }
}

static void crawl_free(struct http_engine *g)
{
    struct crawl *c = g->lister_state;

    if (c != NULL) {
        free_all(&c->waiting);
        free_all(&c->coming);
        free(c);
        g->lister_state = NULL;
    }
}

const struct lister lister_index = {"index", crawl_start, crawl_free, NULL, NULL};
