#include "agent/pull/pull.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/harness/pulled.h"

/* --- states ----------------------------------------------------------------------------------- */

/* As pull.c draws them. */
static const struct {
    enum pull_state from, to;
} legal[] = {
    {PULL_NEW, PULL_ASKING},
    {PULL_NEW, PULL_LOCKING},
    {PULL_NEW, PULL_DONE},
    {PULL_NEW, PULL_FAILING},
    {PULL_ASKING, PULL_LOCKING},
    {PULL_ASKING, PULL_DONE},
    {PULL_ASKING, PULL_RESTARTING},
    {PULL_ASKING, PULL_FAILING},
    {PULL_LOCKING, PULL_LISTING},
    {PULL_LOCKING, PULL_FETCHING},
    {PULL_LOCKING, PULL_DONE},
    {PULL_LOCKING, PULL_FAILING},
    {PULL_LISTING, PULL_FETCHING},
    {PULL_LISTING, PULL_FAILING},
    {PULL_FETCHING, PULL_CHECKING},
    {PULL_FETCHING, PULL_SEALING},
    {PULL_FETCHING, PULL_RESTARTING},
    {PULL_FETCHING, PULL_FAILING},
    {PULL_CHECKING, PULL_FETCHING},
    {PULL_CHECKING, PULL_RESTARTING},
    {PULL_CHECKING, PULL_FAILING},
    {PULL_SEALING, PULL_DONE},
    {PULL_SEALING, PULL_FAILING},
    {PULL_RESTARTING, PULL_NEW},
    {PULL_RESTARTING, PULL_FAILING},
    {PULL_FAILING, PULL_FAILED},
};

static bool is_legal(enum pull_state from, enum pull_state to)
{
    for (size_t i = 0; i < ARRAY_LEN(legal); i++) {
        if (legal[i].from == from && legal[i].to == to) {
            return true;
        }
    }
    return false;
}

/* Does a process survive it? */
static bool moves(enum pull_state from, enum pull_state to)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        signal(SIGABRT, SIG_DFL);
        pull_state_move(&from, to);
        _exit(from == to ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_every_transition(void **state)
{
    (void)state;
    for (unsigned from = 0; from < PULL_STATES; from++) {
        for (unsigned to = 0; to < PULL_STATES; to++) {
            if (moves(from, to) != is_legal(from, to)) {
                fail_msg("from %u to %u", from, to);
            }
        }
    }
}

/* --- files ------------------------------------------------------------------------------------ */

enum { BYTES = 300 << 10 };

struct object { /* what the mirror has, and how it behaves */
    char *p;
    size_t n;
    struct digest digest;
    const char *etag;
    bool no_head;       /* HEAD: 405 */
    bool no_digest;     /* no Repr-Digest */
    bool no_length;     /* and the connection's end is the body's */
    bool lies;          /* other bytes than its digest says */
    bool moves;         /* another digest and ETag in each answer */
    size_t cut;         /* the first GET breaks off there; 0: it does not */
    const char *refuse; /* a whole answer instead */
    unsigned gets;
    unsigned ranges;
};

static void lay(struct object *o, size_t n)
{
    *o = (struct object){.p = mem_new(n + 1), .n = n, .etag = "\"one\""};
    for (size_t i = 0; i < n; i++) {
        o->p[i] = (char)(i * 7 + i / 251);
    }
    digest_of(slice_of(o->p, n), &o->digest);
}

static void head_of(struct object *o, const char *status, size_t n, struct buf *out)
{
    char field[64];
    struct digest d = o->digest;

    d.b[0] = (uint8_t)(d.b[0] + (o->moves ? o->gets : 0));
    digest_repr(&d, field);
    buf_addf(out, "HTTP/1.1 %s\r\nConnection: close\r\nAccept-Ranges: bytes\r\n", status);
    if (!o->no_length) {
        buf_addf(out, "Content-Length: %zu\r\n", n);
    }
    if (o->moves) {
        buf_addf(out, "ETag: \"v%u\"\r\n", o->gets);
    } else if (o->etag != NULL) {
        buf_addf(out, "ETag: %s\r\n", o->etag);
    }
    if (!o->no_digest) {
        buf_addf(out, "Repr-Digest: %s\r\n", field);
    }
}

static void answer(void *arg, struct slice request, struct buf *out)
{
    struct object *o = arg;
    const char *range = memmem(request.p, request.n, "Range: bytes=", 13);
    size_t from = range != NULL ? strtoul(range + 13, NULL, 10) : 0;
    size_t n = o->n - from;

    if (o->refuse != NULL) {
        buf_str(out, o->refuse);
        return;
    }
    if (slice_starts(request, SLICE("HEAD "))) {
        if (o->no_head) {
            buf_str(out, "HTTP/1.1 405 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        } else {
            head_of(o, "200 OK", o->n, out);
            buf_str(out, "\r\n");
        }
        return;
    }
    o->gets++;
    o->ranges += range != NULL;
    head_of(o, range != NULL ? "206 Partial" : "200 OK", n, out);
    if (range != NULL) {
        buf_addf(out, "Content-Range: bytes %zu-%zu/%zu\r\n", from, o->n - 1, o->n);
    }
    buf_str(out, "\r\n");
    buf_add(out, o->p + from, o->cut != 0 && o->gets == 1 ? o->cut : n);
    if (o->lies) {
        out->p[out->n - 1] ^= 1;
    }
}

static void drop(struct object *o)
{
    free(o->p);
}

static void test_a_file(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, BYTES);
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_true(scene_has(s, slice_of(o.p, o.n)));
    assert_int_equal(s->artifact.fetched_bytes, BYTES);
    assert_true(digest_eq(&s->artifact.file[0].digest, &o.digest));
    /* Now it is here: the head tells, and no byte is asked for. */
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_int_equal(s->artifact.fetched_bytes, 0);
    assert_int_equal(s->mirror.requests, 1);
    assert_int_equal(o.gets, 1);
    drop(&o);
}

static void test_a_digest_that_is_here_asks_nobody(void **state)
{
    struct scene *s = *state;
    char from[128];
    char hex[DIGEST_HEX + 1];
    struct digest d;

    local_cache_put(s->world, SLICE("abc"), &d);
    digest_format(&d, hex);
    snprintf(from, sizeof from, "m/a.bin#sha256=%s", hex);
    assert_int_equal(scene_pull(s, from, answer, NULL), 0);
    assert_int_equal(s->mirror.requests, 0);
}

static void test_nothing_at_all(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, 0);
    assert_int_equal(scene_pull(s, "m/empty", answer, &o), 0);
    assert_true(scene_has(s, SLICE("")));
    drop(&o);
}

static void test_a_cut_goes_on_where_it_was(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, BYTES);
    o.cut = 200 << 10;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_true(scene_has(s, slice_of(o.p, o.n)));
    assert_int_equal(o.gets, 2);
    assert_int_equal(o.ranges, 1);
    assert_int_equal(s->artifact.fetched_bytes, BYTES);
    drop(&o);
}

static void test_without_validators_it_begins_anew(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, BYTES);
    o.cut = 200 << 10;
    o.etag = NULL;
    o.no_digest = true;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_true(scene_has(s, slice_of(o.p, o.n)));
    assert_int_equal(o.ranges, 0);
    drop(&o);
}

static void test_without_head_the_stream_tells(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, BYTES);
    o.no_head = true;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    assert_true(scene_has(s, slice_of(o.p, o.n)));
    drop(&o);
}

static void test_wrong_bytes(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, BYTES);
    o.lies = true;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), E_CORRUPT);
    assert_non_null(strstr(s->why.text, "as the mirror says"));
    assert_false(scene_has(s, slice_of(o.p, o.n)));
    drop(&o);
}

static void test_other_bytes_than_asked_for(void **state)
{
    struct scene *s = *state;
    struct object o;
    char from[128];
    char hex[DIGEST_HEX + 1];
    struct digest d;

    lay(&o, BYTES);
    digest_of(SLICE("another"), &d);
    digest_format(&d, hex);
    snprintf(from, sizeof from, "m/a.bin#sha256=%s", hex);
    assert_int_equal(scene_pull(s, from, answer, &o), E_CORRUPT);
    assert_int_equal(o.gets, 0); /* the head says so already */
    assert_non_null(strstr(s->why.text, "as requested"));
    drop(&o);
}

static void test_an_object_that_changes_all_the_time(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, BYTES);
    o.moves = true;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), E_CHANGED);
    assert_int_equal(o.gets, 4); /* once, and three times anew */
    assert_non_null(strstr(s->why.text, "changed on the mirror"));
    drop(&o);
}

static void test_an_end_that_nothing_marks(void **state)
{
    struct scene *s = *state;
    struct object o;

    lay(&o, BYTES);
    o.no_head = o.no_length = o.no_digest = true;
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), E_UNSUPPORTED);
    o.no_digest = false; /* with a digest a cut would be seen */
    assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), 0);
    drop(&o);
}

static void test_refusals(void **state)
{
    static const struct {
        int rc;
        const char *says, *text;
    } all[] = {
        {E_DENIED, "does not permit it (403)",
         "HTTP/1.1 403 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
        {E_DENIED, "only on Sundays",
         "HTTP/1.1 403 No\r\nConnection: close\r\nX-Error-Message: only on "
         "Sundays\r\nContent-Length: 0\r\n\r\n"},
        {E_DENIED, "another host",
         "HTTP/1.1 302 Go\r\nConnection: close\r\nLocation: http://elsewhere/\r\nContent-Length: "
         "0\r\n\r\n"},
        {E_AGAIN, "temporarily unavailable (503)",
         "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
        {E_NOTFOUND, "not found on the mirror",
         "HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
    };
    struct scene *s = *state;
    struct object o = {0};

    s->agent.tries = 1;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        o.refuse = all[i].text;
        assert_int_equal(scene_pull(s, "m/a.bin", answer, &o), all[i].rc);
        if (strstr(s->why.text, all[i].says) == NULL) {
            fail_msg("\"%s\" says nothing of \"%s\"", s->why.text, all[i].says);
        }
    }
}

static void test_what_no_from_can_be(void **state)
{
    static const char *const bad[] = {"", "m/a#sha256=12", "m/a#md5=1", "m/..", "m/a/."};
    struct scene *s = *state;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(scene_pull(s, bad[i], answer, NULL), E_USAGE);
        assert_int_equal(s->mirror.requests, 0);
    }
}

int main(void)
{
#define SCENE(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_transition),
        SCENE(test_a_file),
        SCENE(test_a_digest_that_is_here_asks_nobody),
        SCENE(test_nothing_at_all),
        SCENE(test_a_cut_goes_on_where_it_was),
        SCENE(test_without_validators_it_begins_anew),
        SCENE(test_without_head_the_stream_tells),
        SCENE(test_wrong_bytes),
        SCENE(test_other_bytes_than_asked_for),
        SCENE(test_an_object_that_changes_all_the_time),
        SCENE(test_an_end_that_nothing_marks),
        SCENE(test_refusals),
        SCENE(test_what_no_from_can_be),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
