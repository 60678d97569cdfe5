/* cluster_content.c - uploads items to a cluster's bucket, and downloads them again, without a
 * mirror around it.
 *
 * cluster_content ENDPOINT URL KEYS upload DATA LIST [read-back] [retry-ms N] [known NONCE]...
 *     Uploads the items of LIST, whose lines are "node|blob|chunks OFFSET LENGTH" of the file DATA.
 *     What the indexes NONCE name is in the bucket already. Prints "ready" before the upload, then
 *     "idx NONCE" for each index, then what it cost. A line "wrong OFFSET LENGTH" is a blob whose
 *     bytes do not match its digest.
 * cluster_content ENDPOINT URL KEYS fetch FOLDER [retry-ms N] NONCE...
 *     Downloads all items of these indexes to FOLDER/KIND-DIGEST; FOLDER "-": to nowhere.
 * cluster_content ENDPOINT URL KEYS plain DATA
 *     Reads the file, hashes it and sends it in pieces of 16 MiB: what any upload costs.
 *
 * SIGTERM interrupts an upload.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/clock.h"
#include "server/cluster/content_fetch.h"
#include "server/cluster/content_index.h"
#include "server/cluster/content_upload.h"

enum { PIECE_BYTES = 16 << 20, KNOWN_MAX = 16 };

struct source_item {
    enum content_kind kind;
    struct digest digest;
    uint64_t offset, length_bytes;
    struct buf list; /* of chunks */
};

struct source {
    int fd;
    struct source_item *item;
    size_t count;
    struct source_item *next; /* the one that is being added */
    struct buf known[KNOWN_MAX];
    struct content_index index[KNOWN_MAX];
    unsigned nknown;
};

struct open_item {
    const struct source *source;
    const struct source_item *item;
};

static struct content_upload *running;

/* --- the source --- */

static int has_place(void *arg, enum content_kind kind, const struct digest *d, bool *yes,
                     struct err *e)
{
    struct source *s = arg;
    struct content_object o;
    struct content_item it;

    (void)e;
    *yes = false;
    for (unsigned i = 0; i < s->nknown && !*yes; i++) {
        *yes = content_index_find(&s->index[i], kind, d, &it, &o);
    }
    return 0;
}

static int open_item(void *arg, enum content_kind kind, const struct digest *d, void **item,
                     uint64_t *length_bytes, struct err *e)
{
    struct source *s = arg;
    struct open_item *o = NEW(struct open_item);

    (void)e;
    CHECK(s->next->kind == kind && digest_eq(&s->next->digest, d));
    o->source = s;
    o->item = s->next;
    *item = o;
    *length_bytes = kind == CONTENT_CHUNKS ? o->item->list.n : o->item->length_bytes;
    return 0;
}

static int read_item(void *item, uint64_t offset, void *p, size_t n, struct err *e)
{
    const struct open_item *o = item;

    if (n == 0) {
        return 0;
    }
    if (o->item->kind == CONTENT_CHUNKS) {
        memcpy(p, o->item->list.p + offset, n);
        return 0;
    }
    CHECK(offset + n <= o->item->length_bytes);
    return pread(o->source->fd, p, n, (off_t)(o->item->offset + offset)) == (ssize_t)n
               ? 0
               : err_sys(e, "pread");
}

static void close_item(void *item)
{
    free(item);
}

/* --- LIST --- */

static void hash_item(int fd, struct source_item *it)
{
    struct hasher *h = it->kind == CONTENT_CHUNKS ? hasher_new() : hasher_new_whole();
    static char p[1 << 20];
    size_t count;

    for (uint64_t at = 0; at < it->length_bytes;) {
        size_t n = (size_t)min_u64(sizeof p, it->length_bytes - at);
        CHECK(pread(fd, p, n, (off_t)(it->offset + at)) == (ssize_t)n);
        hasher_add(h, p, n);
        at += n;
    }
    hasher_final(h, &it->digest);
    if (it->kind == CONTENT_CHUNKS) {
        const struct digest *chunk = hasher_chunks(h, &count);
        it->list = BUF_INIT(CONTENT_WHOLE_BYTES);
        chunks_encode(&it->digest, it->length_bytes, chunk, count, &it->list);
    }
    hasher_free(&h);
}

static void read_list(struct source *s, const char *path)
{
    struct buf text = BUF_INIT(64 << 20);
    struct slice rest;

    CHECK(buf_read_file(&text, path, NULL) == 0);
    rest = buf_slice(&text);
    s->item = mem_array(text.n / 4 + 1, sizeof s->item[0]);
    while (rest.n != 0) {
        struct slice line = slice_cut(&rest, '\n'), kind = slice_cut(&line, ' ');
        struct source_item *it = &s->item[s->count++];
        it->kind = slice_eqs(kind, "node")     ? CONTENT_NODE
                   : slice_eqs(kind, "chunks") ? CONTENT_CHUNKS
                                               : CONTENT_BLOB;
        CHECK(slice_u64(slice_cut(&line, ' '), &it->offset) && slice_u64(line, &it->length_bytes));
        hash_item(s->fd, it);
        it->digest.b[0] ^= slice_eqs(kind, "wrong");
    }
    buf_free(&text);
}

static int read_index(struct bucket *b, const char *nonce, struct buf *bytes,
                      struct content_index *ix, struct err *e)
{
    char key[CONTENT_KEY_ROOM];
    int rc;

    *bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    content_index_key(strtoull(nonce, NULL, 16), key);
    rc = bucket_get(b, key, bytes, e);
    return rc != 0 ? rc : content_index_open(buf_slice(bytes), ix, e);
}

/* --- what it costs --- */

static uint64_t cpu_ms(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000 +
           (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1000;
}

/* getrusage() would count what the parent had when it forked. */
static uint64_t peak_kb(void)
{
    struct buf text = BUF_INIT(64 << 10);
    const char *at;
    uint64_t kb = 0;

    if (buf_read_file(&text, "/proc/self/status", NULL) == 0) {
        at = strstr(buf_cstr(&text), "VmHWM:");
        kb = at != NULL ? strtoull(at + strlen("VmHWM:"), NULL, 10) : 0;
    }
    buf_free(&text);
    return kb;
}

static void print_cost(uint64_t cpu_before_ms, uint64_t began_ms)
{
    printf("cpu_ms %" PRIu64 "\ntook_ms %" PRIu64 "\npeak_kb %" PRIu64 "\n",
           cpu_ms() - cpu_before_ms, clock_now_ms() - began_ms, peak_kb());
}

/* --- the modes --- */

static void on_sigterm(int number)
{
    (void)number;
    content_upload_interrupt(running);
}

static int add_items(struct content_upload *u, struct source *s, struct err *e)
{
    const uint64_t *nonce = NULL;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->count; i++) {
        s->next = &s->item[i];
        rc = content_upload_add(u, s->next->kind, &s->next->digest, e);
    }
    rc = rc != 0 ? rc : content_upload_finish(u, &nonce, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        printf("idx %016" PRIx64 "\n", nonce[i]);
    }
    return rc;
}

static int upload(struct bucket *b, char **arg, struct err *e)
{
    static const struct content_source ops = {has_place, open_item, read_item, close_item};
    struct source s = {.fd = open(arg[0], O_RDONLY | O_CLOEXEC)};
    struct content_upload_settings set = {.bucket = b, .source = &ops, .arg = &s};
    struct content_upload_counts c;
    struct content_upload *u;
    uint64_t began_ms, cpu;
    int rc = 0;

    CHECK(s.fd != -1);
    read_list(&s, arg[1]);
    for (arg += 2; rc == 0 && *arg != NULL; arg++) {
        if (strcmp(*arg, "read-back") == 0) {
            set.read_back = true;
        } else if (strcmp(*arg, "retry-ms") == 0) {
            set.retry_ms = strtoull(*++arg, NULL, 10);
        } else {
            CHECK(strcmp(*arg, "known") == 0 && s.nknown < KNOWN_MAX);
            rc = read_index(b, *++arg, &s.known[s.nknown], &s.index[s.nknown], e);
            s.nknown++;
        }
    }
    cpu = cpu_ms();
    began_ms = clock_now_ms();
    u = running = content_upload_open(&set);
    signal(SIGTERM, on_sigterm);
    puts("ready");
    fflush(stdout);
    rc = rc != 0 ? rc : add_items(u, &s, e);
    signal(SIGTERM, SIG_IGN);
    content_upload_counts(u, &c);
    content_upload_close(&u);
    printf("items %" PRIu64 "\nitem_bytes %" PRIu64 "\nskipped %" PRIu64 "\nobjects %" PRIu64
           "\nobject_bytes %" PRIu64 "\n",
           c.items, c.item_bytes, c.skipped, c.objects, c.object_bytes);
    print_cost(cpu, began_ms);
    for (size_t i = 0; i < s.count; i++) {
        buf_free(&s.item[i].list);
    }
    for (unsigned i = 0; i < s.nknown; i++) {
        buf_free(&s.known[i]);
    }
    free(s.item);
    close(s.fd);
    return rc;
}

static int write_item(void *arg, uint64_t offset, struct slice bytes)
{
    const int *fd = arg;

    if (*fd == -1) {
        return 0;
    }
    CHECK(bytes.n == 0 || pwrite(*fd, bytes.p, bytes.n, (off_t)offset) == (ssize_t)bytes.n);
    return 0;
}

static int open_output(const char *folder, const struct content_item *it)
{
    static const char *const name[] = {
        [CONTENT_NODE] = "node", [CONTENT_BLOB] = "blob", [CONTENT_CHUNKS] = "chunks"};
    char hex[DIGEST_HEX + 1], path[4096];
    int fd;

    if (strcmp(folder, "-") == 0) {
        return -1;
    }
    digest_format(&it->digest, hex);
    snprintf(path, sizeof path, "%s/%s-%s", folder, name[it->kind], hex);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    CHECK(fd != -1);
    return fd;
}

static int fetch_index(const struct content_fetch *set, const char *nonce, const char *folder,
                       struct err *e)
{
    struct content_fetch f = *set;
    struct content_object o;
    struct content_index ix;
    struct content_item it;
    struct buf bytes;
    int rc = read_index(f.bucket, nonce, &bytes, &ix, e);

    for (size_t i = 0; rc == 0 && i < ix.count; i++) {
        int fd;
        content_index_row(&ix, i, &it, &o);
        fd = open_output(folder, &it);
        f.arg = &fd;
        rc = content_fetch(&f, &it, &o, e);
        if (fd != -1) {
            close(fd);
        }
    }
    buf_free(&bytes);
    return rc;
}

static int fetch(struct bucket *b, char **arg, struct err *e)
{
    struct content_fetch f = {.bucket = b, .write = write_item};
    uint64_t cpu = cpu_ms(), began_ms = clock_now_ms();
    const char *folder = arg[0];
    int rc = 0;

    for (arg++; rc == 0 && *arg != NULL; arg++) {
        if (strcmp(*arg, "retry-ms") == 0) {
            f.retry_ms = strtoull(*++arg, NULL, 10);
        } else {
            rc = fetch_index(&f, *arg, folder, e);
        }
    }
    print_cost(cpu, began_ms);
    return rc;
}

static int send_plain(struct bucket *b, char **arg, struct err *e)
{
    struct buf piece = BUF_INIT(PIECE_BYTES);
    uint64_t cpu = cpu_ms(), began_ms = clock_now_ms();
    int fd = open(arg[0], O_RDONLY | O_CLOEXEC), rc = 0;
    char key[64];
    ssize_t n;

    CHECK(fd != -1 && buf_room(&piece, PIECE_BYTES) != NULL);
    for (unsigned i = 0; rc == 0; i++) {
        n = read(fd, piece.p, PIECE_BYTES);
        if (n <= 0) {
            break;
        }
        snprintf(key, sizeof key, "plain/%u", i);
        rc = bucket_put(b, key, slice_of(piece.p, (size_t)n), e);
    }
    print_cost(cpu, began_ms);
    buf_free(&piece);
    close(fd);
    return rc;
}

int main(int argc, char **argv)
{
    struct bucket_settings set = {.region = "eu-test-1"};
    struct buf keys = BUF_INIT(4096);
    struct bucket *b = NULL;
    struct err e = {0};
    int rc;

    CHECK(argc >= 6);
    set.endpoint = argv[1];
    set.url = argv[2];
    rc = buf_read_file(&keys, argv[3], &e);
    while (keys.n != 0 && keys.p[keys.n - 1] == '\n') {
        keys.n--;
    }
    set.authorization = buf_cstr(&keys);
    rc = rc != 0 ? rc : bucket_open(&set, &b, &e);
    if (rc == 0 && strcmp(argv[4], "upload") == 0) {
        CHECK(argc >= 7);
        rc = upload(b, argv + 5, &e);
    } else if (rc == 0 && strcmp(argv[4], "fetch") == 0) {
        rc = fetch(b, argv + 5, &e);
    } else if (rc == 0) {
        CHECK(strcmp(argv[4], "plain") == 0);
        rc = send_plain(b, argv + 5, &e);
    }
    if (rc != 0) {
        fprintf(stderr, "cluster_content: %s: %s\n", err_name(rc), e.text);
    }
    bucket_close(&b);
    buf_free(&keys);
    return err_sysexit(rc);
}
