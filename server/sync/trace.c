#include "server/sync/trace.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "common/os/clock.h"
#include "server/store/blob.h"

enum { TEXT_MAX = 16 << 10 };

static void put_time(struct buf *out, const char *name, uint64_t unix_s)
{
    time_t t = (time_t)unix_s;
    char text[64];
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S +0000", &tm);
    buf_addf(out, "%s: %s\n", name, text);
}

/* As date(1) says it: what reads traces reads this line. */
static void put_first_line(struct buf *out, uint64_t unix_s)
{
    time_t t = (time_t)unix_s;
    char text[64];
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%a %b %e %H:%M:%S UTC %Y", &tm);
    buf_addf(out, "%s\n", text);
}

/* "rsync://a.example:873/debian/" -> "a.example" */
static struct slice host_of(const char *url)
{
    struct slice rest = slice_str(url);

    (void)slice_cut(&rest, '/');
    (void)slice_cut(&rest, '/');
    rest = slice_cut(&rest, '/');
    return rest.n != 0 && rest.p[0] == '[' ? rest : slice_cut(&rest, ':');
}

static void write_text(const struct sync_conf *c, const struct run_report *r, struct buf *out)
{
    uint64_t now = clock_unix_s();
    char host[256] = "";
    struct slice from = host_of(r->upstream);

    (void)gethostname(host, sizeof host - 1);
    put_first_line(out, now);
    put_time(out, "Date", now);
    put_time(out, "Date-Started", r->started_unix_s);
    buf_str(out, "Creator: mirrord " MIRROR_VERSION "\n");
    buf_addf(out, "Running on host: %s\n", host);
    for (size_t i = 0; i < c->architectures_count; i++) {
        buf_addf(out, "%s%s%s", i == 0 ? "Architectures: " : " ", c->architectures[i],
                 i + 1 == c->architectures_count ? "\n" : "");
    }
    buf_addf(out, "Upstream-mirror: " SLICE_FMT "\n", SLICE_ARG(from));
    buf_addf(out, "Total bytes received: %" PRIu64 "\n", r->wire_bytes);
}

int trace_add(struct plan_of_run *p, const struct sync_conf *c, const struct run_report *r,
              struct built *b, struct err *e)
{
    struct buf text = BUF_INIT(TEXT_MAX);
    struct batch *batch = batch_new();
    struct tree_edit edit = {.entry = {.path = slice_str(c->trace), .type = ENTRY_FILE}};
    struct built next = {0};
    int rc;

    write_text(c, r, &text);
    edit.entry.size_bytes = text.n;
    edit.entry.mtime_ns = (int64_t)clock_unix_s() * 1000000000;
    digest_of(buf_slice(&text), &edit.entry.digest);
    rc = blob_put_bytes(p->store, buf_slice(&text), batch, NULL, e);
    if (rc == 0) {
        rc = tree_edit(p->store, &b->root, &edit, 1, batch, &next.root, &next.entries, &next.bytes,
                       e);
    }
    if (rc == 0) {
        build_hold(batch, p->repo, &edit.entry.digest);
        rc = store_commit(p->store, &batch, COMMIT_LAZY, e);
    }
    batch_free(&batch);
    buf_free(&text);
    if (rc == 0) {
        *b = next;
    }
    return rc;
}

int trace_is_there(struct plan_of_run *p, const struct sync_conf *c, bool *yes, struct err *e)
{
    struct arena a = {0};
    struct entry en;
    int rc = 0;

    *yes = true;
    if (c->trace != NULL) {
        rc = p->has_base ? tree_get(p->store, &p->base, slice_str(c->trace), &a, &en, e)
                         : E_NOTFOUND;
        *yes = rc == 0;
    }
    arena_fini(&a);
    return rc == E_NOTFOUND ? 0 : rc;
}
