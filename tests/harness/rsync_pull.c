/* rsync_pull.c - the pull machine on a blocking socket, to speak as older clients do and to record
 * what peers say.
 *
 * rsync_pull [-o OFFER] [-b] [-r FILE] HOST PORT MODULE Lists the module, takes every file whole,
 * says goodbye; prints "path size" of what came, and counts. -o 30: offers that version. -b: flags
 * of entries as bytes, MD5. -r: all that the peer sent goes into FILE.
 */
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/sync/rsync/pull.h"

struct one {
    struct pull *p;
    struct { /* of the list, which is gone after on_list */
        char *path;
        uint64_t size;
        bool file;
    } * item;
    uint32_t count, next;
    uint64_t bytes, good, bad, missing;
    bool done;
};

static int on_list(void *arg, struct file_list *l)
{
    struct one *o = arg;
    char room[LIST_PATH_MAX + 1];

    o->count = list_count(l);
    o->item = mem_array((size_t)o->count + 1, sizeof o->item[0]);
    for (uint32_t i = 0; i < o->count; i++) {
        const struct list_entry *en = list_at(l, i);
        list_path(l, en, room);
        o->item[i].path = mem_strdup(room);
        o->item[i].size = en->size_bytes;
        o->item[i].file = list_type(en) == LIST_FILE && list_leader(l, en) == LIST_NONE;
    }
    return 0;
}

static int on_begin(void *arg, int32_t index)
{
    struct one *o = arg;
    (void)index;
    o->bytes = 0;
    return 0;
}

static int on_bytes(void *arg, struct slice bytes, bool here)
{
    struct one *o = arg;
    (void)here;
    o->bytes += bytes.n;
    return 0;
}

static int read_basis(void *arg, uint64_t off, void *to, size_t n, struct err *e)
{
    (void)arg;
    (void)off;
    (void)to;
    (void)n;
    return err_set(e, E_INTERNAL, "there is no basis");
}

static int on_end(void *arg, int32_t index, bool good)
{
    struct one *o = arg;
    printf("%s %" PRIu64 "\n", o->item[index].path, o->bytes);
    o->good += good && o->bytes == o->item[index].size;
    o->bad += !good;
    return 0;
}

static void on_missing(void *arg, int32_t index)
{
    struct one *o = arg;
    (void)index;
    o->missing++;
}

static void on_phase(void *arg, unsigned phase)
{
    struct one *o = arg;
    (void)phase;
    pull_end_phase(o->p);
}

static void on_done(void *arg)
{
    struct one *o = arg;
    o->done = true;
}

static void on_text(void *arg, bool error, struct slice text)
{
    (void)arg;
    fprintf(stderr, "%s: " SLICE_FMT "\n", error ? "error" : "text", SLICE_ARG(text));
}

static void ask(struct one *o)
{
    while (o->item != NULL && pull_may_ask(o->p)) {
        while (o->next < o->count && !o->item[o->next].file) {
            o->next++;
        }
        if (o->next == o->count) {
            pull_end_phase(o->p);
            return;
        }
        pull_ask(o->p, (int32_t)o->next, o->item[o->next].size, 0, false);
        o->next++;
    }
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo lookup = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int fd;

    CHECK(getaddrinfo(host, port, &lookup, &found) == 0);
    fd = socket(found->ai_family, SOCK_STREAM, 0);
    CHECK(fd != -1 && connect(fd, found->ai_addr, found->ai_addrlen) == 0);
    freeaddrinfo(found);
    return fd;
}

static int visit(struct one *o, int fd, FILE *record, struct err *e)
{
    char room[4096];

    for (;;) {
        struct buf *out;
        ssize_t got;
        struct slice in;
        int rc;
        ask(o);
        out = pull_out(o->p);
        while (out->n > 0) {
            ssize_t sent = send(fd, out->p, out->n, MSG_NOSIGNAL);
            if (sent <= 0) {
                return err_sys(e, "send");
            }
            buf_drop(out, (size_t)sent);
        }
        got = recv(fd, room, sizeof room, 0);
        if (got <= 0) {
            return pull_eof(o->p, e);
        }
        if (record != NULL) {
            fwrite(room, 1, (size_t)got, record);
        }
        in = slice_of(room, (size_t)got);
        rc = pull_feed(o->p, &in, e);
        if (rc != 0) {
            return rc;
        }
    }
}

int main(int argc, char **argv)
{
    static const struct pull_events ev = {on_list,    on_begin, on_bytes, read_basis, on_end,
                                          on_missing, on_phase, on_done,  on_text};
    struct pull_settings set = {.hard_links = true, .offer = 31, .limits = LIST_LIMITS};
    struct one o = {.count = 0};
    struct err e = {.code = 0};
    FILE *record = NULL;
    int opt;
    int rc;

    while ((opt = getopt(argc, argv, "o:br:")) != -1) {
        switch (opt) {
        case 'o':
            set.offer = (unsigned)atoi(optarg);
            break;
        case 'b':
            set.plain = true;
            break;
        case 'r':
            record = fopen(optarg, "wb");
            break;
        default:
            return 64;
        }
    }
    if (argc - optind != 3) {
        return 64;
    }
    set.module = slice_str(argv[optind + 2]);
    o.p = pull_new(&set, &ev, &o);
    rc = visit(&o, connect_to(argv[optind], argv[optind + 1]), record, &e);
    fprintf(stderr,
            "entries=%u good=%" PRIu64 " bad=%" PRIu64 " missing=%" PRIu64
            " version=%u checksum=%s done=%d %s\n",
            (unsigned)o.count, o.good, o.bad, o.missing, pull_version(o.p),
            checksum_name(pull_checksum(o.p)), o.done, e.text);
    if (record != NULL) {
        fclose(record);
    }
    for (uint32_t i = 0; i < o.count; i++) {
        free(o.item[i].path);
    }
    free(o.item);
    pull_free(&o.p);
    return err_sysexit(rc);
}
