/* rsync_manifest.c - the rsync engine alone: brings a module into a store and prints what it got.
 *
 * rsync_manifest [-s SECRET] [-c CA_FILE] [-f RULE]... [-n] [-2] [-p PROBE -k CURSOR] STATE URL
 * Each line is type, size, mtime in ns, x or -, SHA-256 or the target or the leader, path; bytes
 * other than graphic ASCII as %XX. What STATE held of a path before is the basis of a delta. -n:
 * list alone. -2: each file is asked for twice. Exit: 0, or the sysexit of the error, which stands
 * on stderr beside counts.
 */
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/newfile.h"
#include "server/sync/engine.h"

struct item {
    struct sync_entry en;
    struct digest digest;
    bool have;
    struct item *next;
};

struct getting {
    struct world *w;
    struct item *item;
    struct download *download;
    struct stage *stage;
    struct hasher *hasher;
    uint64_t at;
    bool failed;
};

struct world {
    struct event_base *base;
    struct message_queue *box;
    struct pool *disk;
    struct store *store;
    struct engine *engine;
    const struct engine_ops *ops;
    struct arena arena;
    struct item *first, **tail, *next;
    unsigned under_way;
    bool list_only, twice, second;
    const char *state;
    int rc;
    struct err why;
    uint64_t files, bytes, missing, corrupt, restarts, left_out;
    bool partial;
    char cursor[128];
};

static void stop(struct world *w, int rc, const struct err *why)
{
    w->rc = rc;
    if (why != NULL) {
        w->why = *why;
    }
    event_base_loopbreak(w->base);
}

static void print_text(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c > ' ' && c < 0x7f && c != '%') {
            putchar(c);
        } else {
            printf("%%%02X", c);
        }
    }
}

/* --- former state: STATE/known, lines "digest path" ------------------------------------------- */

static struct item *known;

static void read_known(struct world *w)
{
    char path[4200];
    FILE *f;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    snprintf(path, sizeof path, "%s/known", w->state);
    f = fopen(path, "r");
    while (f != NULL && (n = getdelim(&line, &room, 0, f)) > DIGEST_HEX + 1) {
        struct item *it = ARENA_NEW(&w->arena, struct item);
        if (digest_parse(slice_of(line, DIGEST_HEX), &it->digest)) {
            it->en.path =
                arena_copy(&w->arena, slice_of(line + DIGEST_HEX + 1, (size_t)n - DIGEST_HEX - 2));
            it->next = known;
            known = it;
        }
    }
    free(line);
    if (f != NULL) {
        fclose(f);
    }
}

static void write_known(struct world *w)
{
    char path[4200];
    FILE *f;

    snprintf(path, sizeof path, "%s/known", w->state);
    f = fopen(path, "w");
    CHECK(f != NULL);
    for (struct item *it = w->first; it != NULL; it = it->next) {
        char hex[DIGEST_HEX + 1];
        if (it->have) {
            digest_format(&it->digest, hex);
            fprintf(f, "%s ", hex);
            fwrite(it->en.path.p, 1, it->en.path.n, f);
            fputc(0, f);
        }
    }
    fclose(f);
}

static struct blob *basis_of(struct world *w, struct slice path)
{
    struct blob *b = NULL;

    for (struct item *it = known; it != NULL; it = it->next) {
        if (slice_eq(it->en.path, path) && blob_open(w->store, &it->digest, &b, NULL) == 0) {
            return b;
        }
    }
    return NULL;
}

/* --- files ------------------------------------------------------------------------------------ */

static void get_more(struct world *w);

static int on_begin(void *arg, uint64_t at, struct slice validator)
{
    struct getting *x = arg;

    (void)validator;
    CHECK(at == 0);
    if (x->hasher != NULL) {
        x->w->restarts++;
        hasher_free(&x->hasher);
        stage_abort(&x->stage);
    }
    x->hasher = hasher_new();
    x->at = 0;
    return stage_open(x->w->store, x->item->en.size_bytes, false, &x->stage, &x->w->why);
}

static int on_body(void *arg, struct slice bytes)
{
    struct getting *x = arg;
    int rc = 0;

    hasher_add(x->hasher, bytes.p, bytes.n);
    if (memcmp(bytes.p, "\0", 1) != 0 ||
        (bytes.n > 1 && memcmp(bytes.p, bytes.p + 1, bytes.n - 1) != 0)) {
        rc = stage_write(x->stage, bytes.p, bytes.n, x->at, &x->w->why);
    }
    x->at += bytes.n;
    return rc;
}

static void seal(struct getting *x)
{
    struct world *w = x->w;
    struct batch *b = batch_new();
    const struct digest *chunk;
    size_t count;

    hasher_final(x->hasher, &x->item->digest);
    chunk = hasher_chunks(x->hasher, &count);
    if (ftruncate(stage_fd(x->stage), (off_t)x->at) != 0 ||
        stage_seal(&x->stage, &x->item->digest, x->at, chunk, count, b, NULL, &w->why) != 0 ||
        store_commit(w->store, &b, COMMIT_LAZY, &w->why) != 0) {
        stop(w, w->why.code != 0 ? w->why.code : E_IO, NULL);
    }
    batch_free(&b);
    x->item->have = true;
    x->item->en.size_bytes = x->at;
    w->files++;
    w->bytes += x->at;
}

static void on_done(void *arg, int rc, const struct err *why, const struct download_result *got)
{
    struct getting *x = arg;
    struct world *w = x->w;

    if (rc == 0) {
        if (got->mtime_ns != SYNC_TIME_UNKNOWN) {
            x->item->en.mtime_ns = got->mtime_ns;
        }
        seal(x);
    } else if (rc == E_NOTFOUND) {
        w->missing++;
    } else if (rc == E_CORRUPT) {
        w->corrupt++;
    } else {
        stop(w, rc, why);
    }
    hasher_free(&x->hasher);
    stage_abort(&x->stage);
    free(x);
    w->under_way--;
    get_more(w);
}

static void get_more(struct world *w)
{
    static const struct download_events ev = {
        .on_begin = on_begin, .on_body = on_body, .on_done = on_done, .on_copy = on_body};

    while (w->under_way < 64 && w->next != NULL) {
        struct item *it = w->next;
        w->next = it->next;
        if (it->en.type == SYNC_FILE && it->en.leader.p == NULL) {
            struct getting *x = NEW(struct getting);
            struct download_params lookup = {.entry = &it->en, .basis = basis_of(w, it->en.path)};
            *x = (struct getting){.w = w, .item = it};
            w->under_way++;
            x->download = w->ops->download(w->engine, &lookup, &ev, x);
            blob_release(&lookup.basis);
        }
    }
    if (w->next == NULL && w->under_way == 0) {
        if (w->twice && !w->second) {
            w->second = true;
            w->next = w->first;
            get_more(w);
            return;
        }
        w->ops->finish(w->engine);
    }
}

/* --- the visit -------------------------------------------------------------------------------- */

static int on_entry(void *arg, const struct sync_entry *en)
{
    struct world *w = arg;
    struct item *it = ARENA_NEW(&w->arena, struct item);

    it->en = *en;
    it->en.path = arena_copy(&w->arena, en->path);
    it->en.target = arena_copy(&w->arena, en->target);
    it->en.leader = en->leader.p != NULL ? arena_copy(&w->arena, en->leader) : SLICE_NONE;
    *w->tail = it;
    w->tail = &it->next;
    return 0;
}

static void on_listed(void *arg, int rc, const struct err *why, const struct engine_listed *l)
{
    struct world *w = arg;

    if (rc != 0) {
        stop(w, rc, why);
        return;
    }
    w->partial = l->partial;
    w->left_out = l->left_out;
    snprintf(w->cursor, sizeof w->cursor, SLICE_FMT, SLICE_ARG(l->cursor));
    w->next = w->list_only ? NULL : w->first;
    get_more(w);
}

static void on_finished(void *arg, int rc, const struct err *why)
{
    stop(arg, rc, why);
}

static void on_probe(void *arg, enum probe_answer a)
{
    struct world *w = arg;

    fprintf(stderr, "probe=%s\n",
            a == PROBE_SAME      ? "same"
            : a == PROBE_CHANGED ? "changed"
                                 : "unknown");
    w->ops->list(w->engine);
}

static void log_text(void *arg, const char *fmt, ...)
{
    char line[600];
    va_list ap;

    (void)arg;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    log_info("engine", "%s", line);
}

static void print(const struct item *it)
{
    char hex[DIGEST_HEX + 1];

    printf("%c %" PRIu64 " %" PRId64 " %c ",
           it->en.type == SYNC_FILE   ? 'f'
           : it->en.type == SYNC_LINK ? 'l'
                                      : 'd',
           it->en.type == SYNC_FILE ? it->en.size_bytes : 0, it->en.mtime_ns,
           it->en.type == SYNC_FILE && it->en.executable ? 'x' : '-');
    if (it->have) {
        digest_format(&it->digest, hex);
        printf("%s", hex);
    } else if (it->en.type == SYNC_LINK) {
        print_text(it->en.target);
    } else if (it->en.leader.p != NULL) {
        putchar('=');
        print_text(it->en.leader);
    } else {
        putchar('-');
    }
    putchar(' ');
    print_text(it->en.path);
    putchar('\n');
}

static int visit(struct world *w, struct engine_site *site, const char *cursor, struct err *e)
{
    static const struct engine_events ev = {.on_probe = on_probe,
                                            .on_entry = on_entry,
                                            .on_listed = on_listed,
                                            .on_finished = on_finished,
                                            .on_broken = on_finished};
    int rc;

    w->ops = engine_find(NULL, site->url);
    if (w->ops == NULL) {
        return err_set(e, E_INVALID, "no engine speaks that");
    }
    rc = w->ops->open(site, &ev, w, &w->engine, e);
    if (rc != 0) {
        return rc;
    }
    if (site->probe != NULL) {
        w->ops->probe(w->engine, slice_str(cursor));
    } else {
        w->ops->list(w->engine);
    }
    event_base_loop(w->base, EVLOOP_NO_EXIT_ON_EMPTY);
    w->ops->close(&w->engine);
    *e = w->why;
    return w->rc;
}

int main(int argc, char **argv)
{
    struct world w = {.tail = &w.first};
    struct engine_site site = {.connect_ms = 60000, .stall_ms = 60000, .log = log_text};
    struct store_settings set = {
        .reserve_bytes = 1, .high_ratio = 0.9, .low_ratio = 0.8, .block_cache_bytes = 8 << 20};
    const char *filter[64];
    struct sync_conf conf = {.links = "keep"};
    const char *cursor = NULL;
    struct rusage used;
    struct err e = {.code = 0};
    int opt;
    int rc;

    while ((opt = getopt(argc, argv, "s:c:f:n2p:k:t:m:")) != -1) {
        switch (opt) {
        case 's':
            site.secret = optarg;
            break;
        case 'c':
            site.ca_file = optarg;
            break;
        case 'f':
            CHECK(conf.filter_count < ARRAY_LEN(filter));
            filter[conf.filter_count++] = optarg;
            break;
        case 'n':
            w.list_only = true;
            break;
        case '2':
            w.twice = true;
            break;
        case 'p':
            site.probe = optarg;
            break;
        case 'k':
            cursor = optarg;
            break;
        case 't':
            site.stall_ms = (uint32_t)atoi(optarg);
            break;
        case 'm':
            site.entries_max = (uint64_t)atoll(optarg);
            break;
        default:
            return 64;
        }
    }
    if (argc - optind != 2) {
        return 64;
    }
    w.state = set.state_dir = argv[optind];
    CHECK(dir_make(w.state, 0700, &e) == 0 && store_open(&set, &w.store, &e) == 0);
    w.base = event_base_new();
    w.box = message_queue_open(w.base);
    w.disk = pool_open("disk", 2, 0);
    read_known(&w);
    site.base = w.base;
    site.box = w.box;
    site.disk = w.disk;
    site.store = w.store;
    conf.filter = filter;
    CHECK(file_filter_new(&conf, &site.file_filter, &e) == 0);
    site.url = slice_str(argv[optind + 1]);
    rc = visit(&w, &site, cursor, &e);
    for (struct item *it = w.first; it != NULL; it = it->next) {
        print(it);
    }
    write_known(&w);
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr,
            "files=%" PRIu64 " bytes=%" PRIu64 " missing=%" PRIu64 " corrupt=%" PRIu64
            " restarts=%" PRIu64 " left_out=%" PRIu64 " partial=%d rss_kb=%ld cursor=%s\n",
            w.files, w.bytes, w.missing, w.corrupt, w.restarts, w.left_out, w.partial,
            used.ru_maxrss, w.cursor);
    if (rc != 0) {
        fprintf(stderr, "error=%s %s\n", err_name(rc), e.text);
    }
    pool_close(&w.disk);
    message_queue_close(&w.box);
    event_base_free(w.base);
    store_close(&w.store);
    file_filter_free(&site.file_filter);
    arena_fini(&w.arena);
    return err_sysexit(rc);
}
